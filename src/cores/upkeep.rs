//! What a core does for its logs between requests: finished jobs, what is due, the way to a stop.
//!
//! Called by the tasks in `life`. Nothing awaits: work goes to the lanes and comes back as finished
//! jobs.

use super::core::Core;
use super::front::PartitionAt;
use super::jobs::Finished;
use shard::ids::Offset;
use std::rc::Rc;
use std::time::Instant;

impl Core {
    /// Whether a partition of this core has records in segments that take no more appends.
    pub(super) fn reaches_back(&self, at: PartitionAt) -> bool {
        let route = self.route(at);
        route.is_some_and(|r| self.hosts[r.host].borrow().log.reaches_back(r.id))
    }

    /// Drops the records of a partition of this core below an offset.
    pub(super) fn raise_log_start(&self, at: PartitionAt, to: Offset) {
        if let Some(route) = self.route(at) {
            self.hosts[route.host].borrow_mut().raise_log_start(route.id, to, self.now());
            self.upkeep.notify();
        }
    }

    /// Takes a finished job.
    pub(super) fn finish(self: &Rc<Self>, finished: Finished) {
        let done = finished.done;
        if done.is_sync() {
            self.metrics.synced(done.took());
        }
        let now = self.now();
        let host = self.hosts.iter().find(|host| host.borrow().id == finished.log);
        let purged = host.map_or(Vec::new(), |host| {
            host.borrow_mut().finish(done, &mut self.scratch.borrow_mut(), now)
        });
        if !purged.is_empty() {
            self.tell_purged(finished.log, purged);
        }
        self.upkeep.notify();
    }

    /// Looks after the logs once. Returns when that should be done again for the sake of those who
    /// wait for a commit.
    pub(super) fn tend(&self) -> Option<u64> {
        let now = self.now();
        let mut due_us = None;
        for host in &self.hosts {
            let mut host = host.borrow_mut();
            let before = host.log.space_counts();
            let started = Instant::now();
            let jobs = host.tick(now);
            if host.log.space_counts() != before {
                self.metrics.moved(started.elapsed());
            }
            for job in jobs {
                self.lanes.submit(host.id, job, &self.home);
            }
            due_us = [due_us, host.due_us()].into_iter().flatten().min();
        }
        due_us.map(|due_us: u64| due_us.saturating_sub(now.mono_us))
    }

    /// Ends the waiting of requests that wait for nothing but time or news: the broker stops.
    pub fn ring_alarms(&self) {
        self.alarms.ring();
    }

    /// Whether appends wait for their place or their commit.
    pub(super) fn appends_wait(&self) -> bool {
        self.hosts.iter().any(|host| host.borrow().has_waiting())
    }

    /// Ends the waiting of appends whose time is up.
    pub(super) fn expire(&self) {
        let now_us = self.now().mono_us;
        self.hosts.iter().for_each(|host| host.borrow_mut().expire(now_us));
    }

    /// One step of all logs towards a clean stop; true when nothing is left to do.
    pub(super) fn stop_step(&self) -> bool {
        let now = self.now();
        let mut stopped = true;
        for host in &self.hosts {
            let mut host = host.borrow_mut();
            stopped &= host.stop_step(now);
            for job in host.log.take_jobs() {
                self.lanes.submit(host.id, job, &self.home);
            }
        }
        stopped
    }
}
