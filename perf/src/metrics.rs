//! The broker's own counts, read from `/metrics` in Prometheus' text format.
//!
//! Histograms and summaries are found by a part of their name, so that a count may be renamed in
//! detail; times are taken to be in seconds unless the name says otherwise.

use crate::error::PerfError;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// One reading of all counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    samples: Vec<Sample>,
}

impl Sample {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    /// What turns the sample's unit into microseconds.
    fn to_us(&self) -> f64 {
        if self.name.contains("_us") || self.name.contains("micros") {
            1.0
        } else if self.name.contains("_ms") || self.name.contains("millis") {
            1e3
        } else {
            1e6
        }
    }
}

impl Metrics {
    /// Reads them from a broker's HTTP address.
    pub fn of(address: &str) -> Result<Metrics, PerfError> {
        let failed = |source: io::Error| PerfError::Metrics { address: address.into(), source };
        let text = get(address).map_err(failed)?;
        Ok(parse(&text))
    }

    fn named<'a>(&'a self, part: &'a str, end: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |s| s.name.contains(part) && s.name.ends_with(end))
    }

    /// The values of one name, with that topic's label where one is given.
    pub fn values<'a>(
        &'a self,
        name: &'a str,
        topic: Option<&'a str>,
    ) -> impl Iterator<Item = f64> + 'a {
        let is_it = move |sample: &&Sample| {
            sample.name == name && (topic.is_none() || sample.label("topic") == topic)
        };
        self.samples.iter().filter(is_it).map(|sample| sample.value)
    }

    /// How often something was counted, over all cores.
    pub fn count(&self, part: &'static str) -> Result<f64, PerfError> {
        let mut end = "_count";
        if self.named(part, end).next().is_none() {
            end = "_total";
        }
        self.named(part, end).next().ok_or(PerfError::NoMetric(part))?;
        Ok(self.named(part, end).map(|sample| sample.value).sum())
    }

    /// A quantile in microseconds: the bound of its bucket over all cores since `before`, or the
    /// worst core's where the broker gives quantiles.
    pub fn quantile_us(
        &self,
        before: &Metrics,
        part: &'static str,
        quantile: f64,
    ) -> Result<f64, PerfError> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.named(part, "_bucket") {
            let Some(bound) = sample.label("le").and_then(bound) else { continue };
            let earlier = before
                .samples
                .iter()
                .find(|other| other.name == sample.name && other.labels == sample.labels);
            let count = sample.value - earlier.map_or(0.0, |other| other.value);
            let bound = bound * sample.to_us();
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((bound, count)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all = buckets.last().map_or(0.0, |(_, count)| *count);
        if let Some((bound, _)) = buckets.iter().find(|(_, count)| *count >= all * quantile) {
            return Ok(*bound);
        }
        let is_it = |sample: &&Sample| {
            sample.label("quantile").and_then(|label| label.parse().ok()) == Some(quantile)
        };
        let worst = self.named(part, "").filter(is_it).map(|sample| sample.value * sample.to_us());
        worst.reduce(f64::max).ok_or(PerfError::NoMetric(part))
    }
}

fn bound(label: &str) -> Option<f64> {
    match label {
        "+Inf" => Some(f64::INFINITY),
        number => number.parse().ok(),
    }
}

fn parse(text: &str) -> Metrics {
    Metrics { samples: text.lines().filter_map(parse_line).collect() }
}

/// `name{label="value",…} number`, or without labels.
fn parse_line(line: &str) -> Option<Sample> {
    if line.starts_with('#') {
        return None;
    }
    let (head, value) = line.trim().rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match head.split_once('{') {
        None => (head, ""),
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
    };
    let labels = labels.split(',').filter_map(|label| {
        let (name, value) = label.split_once('=')?;
        Some((name.trim().to_string(), value.trim_matches('"').to_string()))
    });
    Some(Sample { name: name.trim().to_string(), labels: labels.collect(), value })
}

fn get(address: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_string()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP x y\n\
        b_stall_seconds_bucket{core=\"0\",le=\"0.001\"} 90\n\
        b_stall_seconds_bucket{core=\"0\",le=\"0.01\"} 99\n\
        b_stall_seconds_bucket{core=\"0\",le=\"+Inf\"} 100\n\
        b_stall_seconds_bucket{core=\"1\",le=\"0.001\"} 100\n\
        b_stall_seconds_bucket{core=\"1\",le=\"0.01\"} 100\n\
        b_stall_seconds_bucket{core=\"1\",le=\"+Inf\"} 100\n\
        b_stall_seconds_count{core=\"0\"} 100\n\
        b_stall_seconds_count{core=\"1\"} 100\n\
        b_sync_us{core=\"0\",quantile=\"0.99\"} 750\n\
        b_sync_us{core=\"1\",quantile=\"0.99\"} 20\n\
        b_plain_total 7\n";

    #[test]
    fn counts_are_summed_over_cores() {
        let metrics = parse(TEXT);
        assert_eq!(metrics.count("stall").unwrap(), 200.0);
        assert_eq!(metrics.count("plain").unwrap(), 7.0);
        assert!(matches!(metrics.count("nothing"), Err(PerfError::NoMetric("nothing"))));
        let text = "b_rows{topic=\"a\"} 3\nb_rows{topic=\"b\"} 4\nb_rows_more 9\n";
        let metrics = parse(text);
        assert_eq!(metrics.values("b_rows", Some("b")).sum::<f64>(), 4.0);
        assert_eq!(metrics.values("b_rows", None).sum::<f64>(), 7.0);
    }

    #[test]
    fn quantiles_come_from_buckets_or_as_they_are() {
        let (metrics, none) = (parse(TEXT), Metrics::default());
        assert_eq!(metrics.quantile_us(&none, "stall", 0.9).unwrap(), 1000.0);
        assert_eq!(metrics.quantile_us(&none, "stall", 0.99).unwrap(), 10_000.0);
        assert_eq!(metrics.quantile_us(&none, "stall", 1.0).unwrap(), f64::INFINITY);
        assert_eq!(metrics.quantile_us(&none, "sync", 0.99).unwrap(), 750.0);
        assert!(metrics.quantile_us(&none, "sync", 0.5).is_err());
    }

    #[test]
    fn a_quantile_is_of_the_time_between_two_readings() {
        let before = parse("s_bucket{le=\"1\"} 100\ns_bucket{le=\"2\"} 100\n");
        let after = parse("s_bucket{le=\"1\"} 100\ns_bucket{le=\"2\"} 110\n");
        assert_eq!(after.quantile_us(&Metrics::default(), "s", 0.5).unwrap(), 1e6);
        assert_eq!(after.quantile_us(&before, "s", 0.5).unwrap(), 2e6);
    }
}
