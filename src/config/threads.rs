//! How many threads of each kind a broker has, from its configuration and the machine.
//!
//! Cores get three quarters of the CPUs, so that workers never starve beside them:
//!
//! ```text
//! CPUs     1  2  3  4  8  16
//! cores    1  1  2  3  6  12
//! workers  1  1  1  1  2   4
//! ```

use super::keys::Config;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    pub cores: usize,
    pub workers: usize,
    /// Files of tables that are written at the same time.
    pub tables: usize,
    /// Whether each core gets a CPU of its own.
    pub pinned: bool,
}

impl Config {
    /// `cpus` is what this process may use.
    pub fn threads(&self, cpus: usize) -> Threads {
        let cores = match self.cores {
            0 => cpus.saturating_sub(cpus.div_ceil(4)).max(1),
            cores => cores as usize,
        };
        let workers = match self.workers {
            0 => cpus.saturating_sub(cores).max(1),
            workers => workers as usize,
        };
        let tables = match self.table_workers {
            0 => workers,
            tables => tables as usize,
        };
        Threads { cores, workers, tables, pinned: cores <= cpus }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_leave_room_for_workers() {
        let config = Config::default();
        for (cpus, cores, workers) in
            [(0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 2, 1), (4, 3, 1), (8, 6, 2), (16, 12, 4)]
        {
            let pinned = cpus >= 1;
            let tables = workers;
            let threads = Threads { cores, workers, tables, pinned };
            assert_eq!(config.threads(cpus), threads, "{cpus}");
        }
    }

    #[test]
    fn what_is_asked_for_is_had() {
        let config = Config { cores: 4, workers: 3, table_workers: 2, ..Config::default() };
        let threads = Threads { cores: 4, workers: 3, tables: 2, pinned: false };
        assert_eq!(config.threads(2), threads);
        assert!(config.threads(4).pinned);
    }
}
