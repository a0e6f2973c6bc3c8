//! Topics made and deleted through librdkafka's admin client.

use crate::error::PerfError;
use futures_lite::future::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication, TopicResult};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, Producer};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Topics {
    admin: AdminClient<DefaultClientContext>,
    address: String,
}

impl Topics {
    pub fn at(address: &str) -> Result<Topics, PerfError> {
        let admin = ClientConfig::new().set("bootstrap.servers", address).create()?;
        Ok(Topics { admin, address: address.to_string() })
    }

    /// Makes a topic and waits until its partitions have leaders.
    pub fn create(
        &self,
        name: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Result<(), PerfError> {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        let options = options();
        let results = block_on(self.admin.create_topics([&topic], &options))?;
        check(results)?;
        self.wait_for_leaders(name, partitions)
    }

    /// Makes many topics, some with each request, and waits until all partitions have leaders.
    pub fn create_all(&self, names: &[String], partitions: i32) -> Result<(), PerfError> {
        let before = self.led_partitions()?;
        for some in names.chunks(100) {
            let new = |name| NewTopic::new(name, partitions, TopicReplication::Fixed(1));
            let topics: Vec<NewTopic<'_>> = some.iter().map(|name| new(name)).collect();
            check(block_on(self.admin.create_topics(&topics, &options()))?)?;
        }
        let (since, all) = (Instant::now(), before + names.len() * partitions.max(0) as usize);
        while self.led_partitions()? < all {
            if since.elapsed() > PATIENCE {
                return Err(PerfError::Answer("new topics have no leaders".to_string()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub fn delete(&self, name: &str) -> Result<(), PerfError> {
        check(block_on(self.admin.delete_topics(&[name], &options()))?)
    }

    /// How many partitions with leaders the broker tells of, over all topics.
    pub fn led_partitions(&self) -> Result<usize, PerfError> {
        let metadata = self.admin.inner().fetch_metadata(None, PATIENCE)?;
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        Ok(partitions.filter(|partition| partition.leader() >= 0).count())
    }

    fn wait_for_leaders(&self, name: &str, partitions: i32) -> Result<(), PerfError> {
        let mut config = ClientConfig::new();
        let client: BaseProducer = config.set("bootstrap.servers", &self.address).create()?;
        let since = Instant::now();
        loop {
            let metadata = client.client().fetch_metadata(Some(name), PATIENCE)?;
            let led = |topic: &rdkafka::metadata::MetadataTopic| {
                topic.partitions().iter().filter(|p| p.leader() >= 0).count() as i32
            };
            if metadata.topics().first().map_or(0, led) >= partitions || since.elapsed() > PATIENCE
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

fn check(results: Vec<TopicResult>) -> Result<(), PerfError> {
    match results.into_iter().find_map(Result::err) {
        Some((topic, code)) => Err(PerfError::Topic { topic, code }),
        None => Ok(()),
    }
}
