//! Apache Kafka as its own scripts start it: one node that is broker and controller (KRaft), on
//! the settings of the `server.properties` and `kafka-server-start.sh` it ships.

use crate::broker::{free_addresses, Broker};
use crate::error::PerfError;
use crate::tool::{bounded, output};
use crate::wire::Wire;
use kafka_protocol::messages::MetadataRequest;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const READY_WITHIN: Duration = Duration::from_secs(180);
const INTERVAL: Duration = Duration::from_millis(10);
const METADATA_VERSION: i16 = 4;
/// `KAFKA_HEAP_OPTS` and `KAFKA_JVM_PERFORMANCE_OPTS` where they are not set.
const JVM: &[&str] = &[
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
];
/// Of a node by itself; all but addresses and directories as shipped.
const PROPERTIES: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
";
const CLUSTER: &str = "basaltbasaltbasaltbasa";

/// Where the jars are.
#[derive(Clone, Debug)]
pub struct Kafka {
    /// Of `org.apache.kafka:kafka_2.13` and what it needs.
    pub jars: PathBuf,
    /// Of `org.apache.kafka:kafka-tools` and what it needs.
    pub tools: PathBuf,
    /// What the broker says goes into `kafka.log` there.
    pub root: PathBuf,
}

impl Kafka {
    /// Starts a node on `data`, formatted where that has not been done, and waits until it answers.
    pub fn start(&self, data: &Path, flushes: bool) -> Result<Broker, PerfError> {
        if !data.join("log").exists() {
            self.format(data)?;
        }
        let (address, controller) = free_addresses()?;
        let properties = self.properties(data, (&address, &controller), flushes)?;
        let log = self.root.join("kafka.log");
        let said = File::create(&log).map_err(PerfError::file(&log))?;
        let errors = said.try_clone().map_err(PerfError::file(&log))?;
        let mut command = self.java(JVM, &self.jars);
        command.arg("kafka.Kafka").arg(&properties);
        command.stdin(Stdio::null()).stdout(said).stderr(errors);
        let started = Instant::now();
        let child = command.spawn().map_err(PerfError::run("java"))?;
        let broker = Broker::of_child(address, child, Duration::ZERO);
        while !answers(&broker.address) {
            if started.elapsed() > READY_WITHIN || !is_running(broker.pid) {
                drop(broker);
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(PerfError::NotReady { said });
            }
            std::thread::sleep(INTERVAL);
        }
        Ok(broker.ready_after(started.elapsed()))
    }

    /// A tool of Kafka's own with these arguments, to its end; what it printed.
    pub fn tool(&self, class: &str, arguments: &[&str]) -> Result<String, PerfError> {
        let mut command = bounded("java");
        command.args(["-Xmx512M", "-cp"]).arg(self.tools.join("*"));
        output(command.arg(format!("org.apache.kafka.tools.{class}")).args(arguments))
    }

    fn properties(
        &self,
        data: &Path,
        (address, controller): (&str, &str),
        flushes: bool,
    ) -> Result<PathBuf, PerfError> {
        let log = data.join("log");
        let mut text = format!(
            "{PROPERTIES}controller.quorum.voters=1@{controller}\n\
             listeners=PLAINTEXT://{address},CONTROLLER://{controller}\n\
             advertised.listeners=PLAINTEXT://{address}\nlog.dirs={}\n",
            log.display()
        );
        if flushes {
            text.push_str("log.flush.interval.messages=1\n");
        }
        let path = data.join("server.properties");
        fs::write(&path, text).map_err(PerfError::file(&path))?;
        Ok(path)
    }

    /// Makes a directory one that a node starts on.
    pub fn format(&self, data: &Path) -> Result<(), PerfError> {
        let (address, controller) = free_addresses()?;
        let properties = self.properties(data, (&address, &controller), false)?;
        let mut command = self.java(&[], &self.jars);
        command.args(["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER, "--config"]);
        output(command.arg(properties)).map(|_| ())
    }

    fn java(&self, options: &[&str], jars: &Path) -> Command {
        let mut command = Command::new("java");
        command.args(options).arg("-cp").arg(jars.join("*"));
        command
    }
}

/// It knows of a broker that clients may go to.
fn answers(address: &str) -> bool {
    let asked = Wire::to(address)
        .and_then(|mut wire| wire.ask(METADATA_VERSION, &MetadataRequest::default()));
    asked.is_ok_and(|answer| !answer.brokers.is_empty())
}

/// Neither gone nor waiting to be reaped.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}
