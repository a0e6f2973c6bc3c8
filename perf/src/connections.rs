//! Connections by themselves: what one costs that does nothing, and whether producers find the
//! core of their partition.

use crate::broker::{Broker, Starter};
use crate::error::PerfError;
use crate::metrics::Metrics;
use crate::tool::{Outcome, Produce, Tool};
use crate::topics::Topics;
use benches::counters::{anonymous_bytes, cpu_seconds};
use benches::report::{Bar, Report};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Idle connections are looked at for this time.
const IDLE: Duration = Duration::from_secs(5);
/// A broker's counts are as of this time ago at most.
const TOLD: Duration = Duration::from_millis(1200);
/// What a core allocates once is there after so many connections.
const WARM_UP: usize = 50;

/// A request for ApiVersions 0 without a client id.
const API_VERSIONS: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];

/// Connections that have asked once and are quiet since: memory of each, CPU of all.
pub fn idle(starter: &Starter, count: usize) -> Result<Report, PerfError> {
    let mut report = Report::new("idle-connections");
    let data = starter.data_dir()?;
    let broker = starter.start(data.path())?;
    let warm = connect(&broker.address, WARM_UP)?;
    let before = anonymous_bytes(broker.pid)?;
    let cold = connect(&broker.address, count)?;
    let case = format!("{count} idle connections");
    std::thread::sleep(Duration::from_secs(1));
    let grown = anonymous_bytes(broker.pid)?.saturating_sub(before) as f64;
    let each = grown / count.max(1) as f64 / 1024.0;
    report.held((&case, "memory of each"), each, "KiB", Bar::AtMost(6.0));
    let used = cpu_seconds(broker.pid)?;
    std::thread::sleep(IDLE);
    let used = (cpu_seconds(broker.pid)? - used) / IDLE.as_secs_f64();
    report.held((&case, "CPU"), used * 100.0, "%", Bar::AtMost(1.0));
    // All of them are still there.
    for mut stream in warm.into_iter().chain(cold) {
        ask(&mut stream).map_err(PerfError::run("an idle connection"))?;
    }
    broker.kill();
    Ok(report)
}

/// So many connections that have asked once.
pub fn connect(address: &str, count: usize) -> Result<Vec<TcpStream>, PerfError> {
    let one = |_| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        ask(&mut stream)?;
        Ok(stream)
    };
    (0..count).map(one).collect::<io::Result<_>>().map_err(PerfError::run("connect"))
}

/// Asks for ApiVersions and takes the answer.
pub fn ask(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&API_VERSIONS)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let bytes = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer)
}

/// Two producers, each with a partition on a core of its own: where clients know the cores, and
/// behind one address, where their connections have to find them.
pub fn follow(starter: &Starter, tool: &Tool, messages: u64) -> Result<Report, PerfError> {
    let mut report = Report::new("follow");
    let case = "2 producers of 1 KiB, 2 cores, acks=1";
    let mut rates = Vec::new();
    for advertise in ["per-core", "one"] {
        let mut starter = starter.clone();
        starter.flags =
            ["--cores", "2", "--flush", "os", "--advertise", advertise].map(String::from).to_vec();
        let data = starter.data_dir()?;
        let broker = starter.start(data.path())?;
        let cpu = cpu_seconds(broker.pid)?;
        let rate = two_producers(&broker, tool, messages)?;
        let cpu = (cpu_seconds(broker.pid)? - cpu) * 1e6 / (2 * messages).max(1) as f64;
        report.row(case, &format!("rate, {advertise}"), rate / 1e3, "k msg/s");
        report.row(case, &format!("CPU, {advertise}"), cpu, "CPU-s/M");
        if let Some(http) = &broker.http {
            std::thread::sleep(TOLD);
            let moves = Metrics::of(http)?.count("connections_moved_in")?;
            report.row(case, &format!("moves, {advertise}"), moves, "");
        }
        broker.stop()?;
        rates.push(rate);
    }
    if let [per_core, one] = rates[..] {
        report.held(
            (case, "rate, one to per-core"),
            one / per_core.max(1.0),
            "×",
            Bar::AtLeast(0.9),
        );
    }
    Ok(report)
}

/// Messages a second of both together.
fn two_producers(broker: &Broker, tool: &Tool, messages: u64) -> Result<f64, PerfError> {
    const TOPIC: &str = "follow";
    Topics::at(&broker.address)?.create(TOPIC, 2, &[])?;
    let produce = |partition: i32| {
        let partition = Some(partition);
        let what = Produce {
            topic: TOPIC,
            partition,
            messages,
            bytes: 1024,
            acks: 1,
            rate: None,
            settings: &[],
        };
        tool.produce(&broker.address, &what)
    };
    let both: Vec<Result<Outcome, PerfError>> = std::thread::scope(|scope| {
        let runs: Vec<_> =
            [0, 1].into_iter().map(|partition| scope.spawn(move || produce(partition))).collect();
        runs.into_iter().filter_map(|run| run.join().ok()).collect()
    });
    let outcomes: Vec<Outcome> = both.into_iter().collect::<Result<_, _>>()?;
    let slowest = outcomes.iter().map(|outcome| outcome.seconds).fold(1e-3, f64::max);
    Ok(outcomes.iter().map(|outcome| outcome.messages).sum::<u64>() as f64 / slowest)
}
