//! Why a measurement did not come to an end.

use benches::BenchError;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("running {program}: {source}")]
    Run { program: String, source: io::Error },
    #[error("`{program}` failed ({status}):\n{said}")]
    Failed { program: String, status: std::process::ExitStatus, said: String },
    #[error(
        "no sources of rdkafka-sys: run inside the checkout, or set RDKAFKA_PERFORMANCE to the \
         path of rdkafka_performance"
    )]
    NoSources,
    #[error("rdkafka_performance printed no summary:\n{said}")]
    NoSummary { said: String },
    #[error("{delivered} of {wanted} messages got through")]
    Lost { delivered: u64, wanted: u64 },
    #[error("the broker did not become ready; its log:\n{said}")]
    NotReady { said: String },
    #[error("no broker binary at {}: cargo build --release, or --basalt PATH", path.display())]
    NoBroker { path: PathBuf },
    #[error("cases of tables start brokers of their own: without --bootstrap")]
    OwnBrokers,
    #[error("the broker (pid {pid}) did not stop within {seconds} s")]
    NotStopped { pid: u32, seconds: u64 },
    #[error("the client: {0}")]
    Client(#[from] KafkaError),
    #[error("topic {topic}: {code}")]
    Topic { topic: String, code: RDKafkaErrorCode },
    #[error("{0} of the latency messages did not come back")]
    Missing(usize),
    #[error("http://{address}/metrics: {source}")]
    Metrics { address: String, source: io::Error },
    #[error("{address}: {source}")]
    Wire { address: String, source: io::Error },
    #[error("an answer of the broker: {0}")]
    Answer(String),
    #[error("the broker counts nothing called *{0}*")]
    NoMetric(&'static str),
    #[error(transparent)]
    Measure(#[from] BenchError),
    #[error("what a program or the broker answered is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{case}: {source}")]
    Case { case: String, source: Box<PerfError> },
    #[error("a plot: {0}")]
    Plot(String),
}

impl PerfError {
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> PerfError {
        let path = path.into();
        move |source| PerfError::File { path, source }
    }

    /// What a plot fails with depends on what it is drawn on.
    pub fn plot(error: impl std::fmt::Display) -> PerfError {
        PerfError::Plot(error.to_string())
    }

    pub fn run(program: impl Into<String>) -> impl FnOnce(io::Error) -> PerfError {
        let program = program.into();
        move |source| PerfError::Run { program, source }
    }
}
