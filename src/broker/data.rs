//! What a data directory says of itself: whose it is, how often it was started, which logs it has.
//!
//! ```text
//! cluster   the cluster id, one line; written once
//! start     how often a broker started here, one line; rises before anything is appended
//! logs/N    the files of log N
//! ```
//!
//! The start counter is the leader epoch of a run, so it must never go back: a directory with logs
//! and without these files is refused.

use shard::disk::Disk;
use shard::ids::{LeaderEpoch, LogId};
use std::io;
use std::path::{Path, PathBuf};
use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is damaged: it reads {found:?}", path.display())]
    Damaged { path: PathBuf, found: String },
    #[error(
        "{} is missing beside logs that need it: restore it from a copy, or move the logs away",
        path.display()
    )]
    Missing { path: PathBuf },
}

/// A data directory of a broker that starts.
#[derive(Debug)]
pub struct Data {
    pub cluster: Uuid,
    /// The counter of this start.
    pub run: LeaderEpoch,
    /// Log directories in the order of their numbers: those that were there and, if the broker has
    /// more cores, new ones.
    pub logs: Vec<(LogId, PathBuf)>,
}

impl Data {
    /// Reads the directory and counts this start, durably.
    pub fn open(disk: &dyn Disk, dir: &Path, cores: usize) -> Result<Data, DataError> {
        let logs_dir = dir.join("logs");
        disk.create_dir(&logs_dir).map_err(at(&logs_dir))?;
        let there = count_logs(&logs_dir)?;
        let cluster = Data::cluster(disk, &dir.join("cluster"), there > 0)?;
        let run = Data::count_start(disk, &dir.join("start"), there > 0)?;
        let numbers = 0..there.max(cores as u32);
        let logs = numbers.map(|number| (LogId(number), logs_dir.join(number.to_string())));
        Ok(Data { cluster, run, logs: logs.collect() })
    }

    fn cluster(disk: &dyn Disk, path: &Path, needed: bool) -> Result<Uuid, DataError> {
        if let Some(text) = read(path, needed)? {
            let damaged = |_| DataError::Damaged { path: path.to_path_buf(), found: text.clone() };
            return Uuid::try_parse(text.trim()).map_err(damaged);
        }
        let cluster = Uuid::new_v4();
        let text = format!("{}\n", cluster.simple());
        disk.publish(path, text.as_bytes()).map_err(at(path))?;
        Ok(cluster)
    }

    fn count_start(disk: &dyn Disk, path: &Path, needed: bool) -> Result<LeaderEpoch, DataError> {
        let before = match read(path, needed)? {
            Some(text) => {
                let count = text.trim().parse::<i32>().ok().filter(|count| *count >= 0);
                let path = path.to_path_buf();
                count.ok_or(DataError::Damaged { path, found: text })?
            }
            None => 0,
        };
        let now = before.saturating_add(1);
        disk.publish(path, format!("{now}\n").as_bytes()).map_err(at(path))?;
        Ok(LeaderEpoch(now))
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> DataError + '_ {
    move |source| DataError::Io { path: path.to_path_buf(), source }
}

/// None when the file is not there and not `needed`.
fn read(path: &Path, needed: bool) -> Result<Option<String>, DataError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match needed {
            true => Err(DataError::Missing { path: path.to_path_buf() }),
            false => Ok(None),
        },
        Err(source) => Err(DataError::Io { path: path.to_path_buf(), source }),
    }
}

/// One more than the highest number of a log directory.
fn count_logs(dir: &Path) -> Result<u32, DataError> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir).map_err(at(dir))? {
        let name = entry.map_err(at(dir))?.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.parse::<u32>().ok()) {
            count = count.max(number.saturating_add(1));
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard::disk::RealDisk;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let dir = std::env::temp_dir().join(format!("basalt-data-{name}-{}", Uuid::new_v4()));
            std::fs::create_dir_all(&dir).expect("a directory");
            Scratch(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn each_start_counts_and_logs_stay() {
        let dir = Scratch::new("counts");
        let open = |cores: usize| {
            let data = Data::open(&RealDisk, &dir.0, cores).expect("a fresh directory");
            data.logs.iter().for_each(|(_, path)| {
                std::fs::create_dir_all(path).expect("a log directory");
            });
            (data.cluster, data.run.0, data.logs.len())
        };
        let (cluster, run, logs) = open(2);
        assert_eq!((run, logs), (1, 2));
        assert_eq!(open(1), (cluster, 2, 2));
        assert_eq!(open(3), (cluster, 3, 3));
    }

    #[test]
    fn logs_without_their_counter_are_refused() {
        let dir = Scratch::new("missing");
        let open = || Data::open(&RealDisk, &dir.0, 1);
        let data = open().expect("a fresh directory");
        std::fs::create_dir_all(&data.logs[0].1).expect("a log directory");
        std::fs::write(dir.0.join("start"), "x").expect("write");
        assert!(matches!(open(), Err(DataError::Damaged { .. })));
        std::fs::remove_file(dir.0.join("start")).expect("remove");
        assert!(matches!(open(), Err(DataError::Missing { .. })));
    }
}
