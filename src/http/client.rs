//! The client side of HTTP, for `basalt stats` and `basalt sql`: one request, read to its end.

use std::io::{self, Read};
use std::time::Duration;

/// The most `basalt stats` reads, and how long it waits for an answer to begin.
const STATS_BYTES_MAX: u64 = 16 << 20;
const STATS_PATIENCE: Duration = Duration::from_secs(5);

/// What a running broker counts, as it tells it at `address`.
pub fn stats(address: &str) -> io::Result<String> {
    match get(address, "/metrics")? {
        (200, text) => Ok(text),
        (status, _) => Err(io::Error::other(format!("it answers {status}"))),
    }
}

/// Status and body of an answer, whatever the status is.
pub(super) fn get(address: &str, path: &str) -> io::Result<(u16, String)> {
    let agent = agent(Some(STATS_PATIENCE));
    let mut answer =
        agent.get(format!("http://{address}{path}")).call().map_err(io::Error::other)?;
    let mut text = String::new();
    answer.body_mut().as_reader().take(STATS_BYTES_MAX).read_to_string(&mut text)?;
    Ok((answer.status().as_u16(), text))
}

fn agent(patience: Option<Duration>) -> ureq::Agent {
    let settings = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(STATS_PATIENCE))
        .timeout_global(patience)
        .build();
    settings.into()
}

/// An answer to a statement, still being read.
#[cfg(feature = "sql")]
pub struct Answer {
    pub status: u16,
    pub body: Box<dyn Read>,
}

/// Sends a statement to the broker at `address`, asking for rows of this media type.
#[cfg(feature = "sql")]
pub fn ask(address: &str, sql: &str, accept: &str) -> io::Result<Answer> {
    let request = agent(None).post(format!("http://{address}/sql")).header("Accept", accept);
    let answer = request.send(sql).map_err(io::Error::other)?;
    let status = answer.status().as_u16();
    Ok(Answer { status, body: Box::new(answer.into_body().into_reader()) })
}
