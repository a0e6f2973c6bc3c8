//! What the simulated disk may and may not do, as tables and against a small model.

use super::*;
// By name, before the trait of this name that proptest brings.
use super::Rng;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const EIO: i32 = libc::EIO;
const PAGE: usize = PAGE_BYTES;

fn dir() -> &'static Path {
    Path::new("/data")
}

fn path(name: &str) -> PathBuf {
    dir().join(name)
}

fn disk() -> SimDisk {
    let disk = SimDisk::new(7);
    disk.create_dir(dir()).unwrap();
    disk
}

fn read(disk: &SimDisk, name: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(&path(name))?;
    let mut bytes = vec![0; file.len()? as usize];
    let count = file.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn errno<T: fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

fn sim_error<T: fmt::Debug>(result: io::Result<T>) -> Option<SimError> {
    SimError::of(&result.unwrap_err())
}

/// What `look` sees after many power losses of the same disk.
fn outcomes<T: Ord>(disk: &SimDisk, look: impl Fn(SimDisk) -> T) -> BTreeSet<T> {
    (0..300).map(|seed| look(disk.fork().crash(&mut Rng::new(seed)))).collect()
}

#[test]
fn stores_are_read_at_once_and_durable_after_a_sync_of_their_range() {
    let disk = disk();
    let mut writer = disk.create_map(&path("s"), 4 * PAGE as u64).unwrap();
    writer.store(10, b"first");
    writer.store(2 * PAGE, b"second");
    assert_eq!(&read(&disk, "s").unwrap()[10..15], b"first");
    assert_eq!(disk.durable(&path("s")).unwrap(), vec![0; 4 * PAGE]);
    disk.sync_map(writer.map(), 0, 20).unwrap();
    let durable = disk.durable(&path("s")).unwrap();
    assert_eq!(&durable[10..15], b"first");
    assert_eq!(&durable[2 * PAGE..2 * PAGE + 6], &[0; 6]);
    let seen = outcomes(&disk, |disk| read(&disk, "s").unwrap()[2 * PAGE..][..6].to_vec());
    assert_eq!(seen, [vec![0; 6], b"second".to_vec()].into());
}

#[test]
fn a_power_loss_loses_keeps_or_tears_each_page_on_its_own() {
    let disk = disk();
    let mut writer = disk.create_map(&path("s"), 2 * PAGE as u64).unwrap();
    writer.store(0, &[1; 2 * PAGE]);
    let mut torn = 0;
    let ends = outcomes(&disk, |disk| {
        let bytes = read(&disk, "s").unwrap();
        let page = |page: usize| {
            let sectors = bytes[page * PAGE..][..PAGE].chunks(SECTOR_BYTES);
            sectors.map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is never torn");
                u32::from(sector[0])
            })
        };
        (page(0).sum::<u32>(), page(1).sum::<u32>())
    });
    let sectors = (PAGE / SECTOR_BYTES) as u32;
    for both in [(0, 0), (0, sectors), (sectors, 0), (sectors, sectors)] {
        assert!(ends.contains(&both), "{both:?}");
    }
    for (first, _) in ends {
        torn += u32::from(first > 0 && first < sectors);
    }
    assert!(torn > 2);
}

#[test]
fn a_killed_process_leaves_its_cache_which_a_power_loss_may_still_take() {
    let disk = disk();
    let mut writer = disk.create_map(&path("s"), PAGE as u64).unwrap();
    writer.store(0, b"bytes");
    let next = disk.kill();
    assert_eq!(&read(&next, "s").unwrap()[..5], b"bytes");
    // The old map is cut off.
    writer.store(0, b"ghost");
    assert_eq!(&read(&next, "s").unwrap()[..5], b"bytes");
    assert_eq!(sim_error(disk.sync_map(writer.map(), 0, 5)), Some(SimError::Dead));
    assert_eq!(sim_error(disk.list(dir())), Some(SimError::Dead));
    let seen = outcomes(&next, |disk| read(&disk, "s").unwrap()[..5].to_vec());
    assert_eq!(seen, [vec![0; 5], b"bytes".to_vec()].into());
}

#[test]
fn handles_of_a_crashed_process_are_dead() {
    let disk = disk();
    let mut file = disk.create(&path("f")).unwrap();
    file.append(b"x").unwrap();
    let reader = disk.open(&path("f")).unwrap();
    let next = disk.crash(&mut Rng::new(1));
    assert_eq!(sim_error(file.append(b"y")), Some(SimError::Dead));
    assert_eq!(sim_error(file.sync()), Some(SimError::Dead));
    assert_eq!(sim_error(reader.len()), Some(SimError::Dead));
    assert_eq!(sim_error(reader.read_at(0, &mut [0])), Some(SimError::Dead));
    assert!(next.list(dir()).is_ok());
    assert!(format!("{disk:?}").starts_with("SimDisk dead"));
}

#[test]
fn a_published_file_is_old_or_new_at_every_step_and_new_at_the_end() {
    let old = disk();
    old.publish(&path("f"), b"old").unwrap();
    let steps = {
        let disk = old.fork();
        let before = disk.ops();
        disk.publish(&path("f"), b"new!").unwrap();
        let seen = outcomes(&disk, |disk| read(&disk, "f").unwrap());
        assert_eq!(seen, [b"new!".to_vec()].into());
        disk.ops() - before
    };
    assert_eq!(steps, 5);
    let mut all = BTreeSet::new();
    for step in 0..steps {
        let disk = old.fork();
        disk.inject(Fault::Stop { at: disk.ops() + step });
        let result = disk.publish(&path("f"), b"new!");
        assert_eq!(sim_error(result), Some(SimError::Stopped));
        assert!(disk.is_stopped());
        all.extend(outcomes(&disk, |disk| read(&disk, "f").unwrap()));
    }
    assert_eq!(all, [b"old".to_vec(), b"new!".to_vec()].into());
}

#[test]
fn a_new_map_is_whole_once_made_and_may_be_short_or_absent_before() {
    let empty = disk();
    let mut all = BTreeSet::new();
    for step in 0..3 {
        let disk = empty.fork();
        disk.inject(Fault::Stop { at: disk.ops() + step });
        assert_eq!(sim_error(disk.create_map(&path("s"), 100)), Some(SimError::Stopped));
        all.extend(outcomes(&disk, |disk| read(&disk, "s").ok().map(|bytes| bytes.len())));
    }
    for length in [None, Some(0), Some(100)] {
        assert!(all.contains(&length), "{length:?}");
    }
    assert!(all.iter().flatten().all(|length| *length <= 100));
    empty.create_map(&path("s"), 100).unwrap();
    assert_eq!(outcomes(&empty, |disk| read(&disk, "s").unwrap()), [vec![0; 100]].into());
}

#[test]
fn unsynced_appends_survive_in_any_length() {
    let disk = disk();
    let mut file = disk.create(&path("f")).unwrap();
    file.append(&[1; 100]).unwrap();
    file.sync().unwrap();
    disk.rename(&path("f"), &path("g")).unwrap();
    file.append(&[2; 10_000]).unwrap();
    let seen = outcomes(&disk, |disk| {
        let bytes = read(&disk, "g").unwrap();
        assert_eq!(bytes[..100], [1; 100]);
        assert!(bytes[100..].iter().all(|byte| [0, 2].contains(byte)));
        bytes.len()
    });
    assert!(seen.contains(&100) && seen.contains(&10_100) && seen.len() > 10, "{seen:?}");
}

#[test]
fn after_a_failed_sync_the_next_one_succeeds_and_writes_nothing() {
    let disk = disk();
    let mut writer = disk.create_map(&path("s"), PAGE as u64).unwrap();
    writer.store(0, b"lost");
    disk.inject(Fault::Fail { op: Op::SyncMap, after: 0, errno: EIO });
    assert_eq!(errno(disk.sync_map(writer.map(), 0, 4)), Some(EIO));
    disk.sync_map(writer.map(), 0, 4).unwrap();
    assert_eq!(&read(&disk, "s").unwrap()[..4], b"lost");
    assert_eq!(&disk.durable(&path("s")).unwrap()[..4], &[0; 4]);
    // Not even a killed process's successor may trust what it reads.
    let next = disk.fork();
    assert_eq!(&read(&next, "s").unwrap()[..4], b"lost");
    next.evict();
    assert_eq!(&read(&next, "s").unwrap()[..4], &[0; 4]);
    // A page stored to again is written again, old bytes and all.
    writer.store(4, b"!");
    disk.sync_map(writer.map(), 4, 5).unwrap();
    assert_eq!(&disk.durable(&path("s")).unwrap()[..5], b"lost!");
}

#[test]
fn a_failed_file_sync_loses_what_it_covered() {
    let disk = disk();
    let mut file = disk.create(&path("f")).unwrap();
    file.append(b"lost").unwrap();
    disk.inject(Fault::Fail { op: Op::Sync, after: 0, errno: EIO });
    assert_eq!(errno(file.sync()), Some(EIO));
    file.sync().unwrap();
    disk.rename(&path("f"), &path("g")).unwrap();
    assert_eq!(outcomes(&disk, |disk| read(&disk, "g").unwrap()), [vec![0; 4]].into());
}

#[test]
fn a_sync_that_lies_promises_what_a_power_loss_takes() {
    let disk = disk();
    let mut writer = disk.create_map(&path("s"), PAGE as u64).unwrap();
    disk.inject(Fault::Lie { op: Op::SyncMap, after: 1 });
    writer.store(0, b"kept");
    disk.sync_map(writer.map(), 0, 4).unwrap();
    writer.store(600, b"gone");
    disk.sync_map(writer.map(), 600, 604).unwrap();
    let seen = outcomes(&disk, |disk| {
        let bytes = read(&disk, "s").unwrap();
        assert_eq!(&bytes[..4], b"kept");
        bytes[600..604].to_vec()
    });
    assert_eq!(seen, [vec![0; 4], b"gone".to_vec()].into());
}

#[test]
fn a_failed_append_leaves_a_prefix() {
    let disk = disk();
    let mut file = disk.create(&path("f")).unwrap();
    disk.inject(Fault::Fail { op: Op::Append, after: 1, errno: EIO });
    file.append(b"12").unwrap();
    assert_eq!(errno(file.append(b"345678")), Some(EIO));
    assert!(b"12345678".starts_with(&read(&disk, "f").unwrap()));
}

#[test]
fn reads_stop_before_a_bad_sector_and_fail_in_it() {
    let disk = disk();
    disk.publish(&path("f"), &[3; 3_000]).unwrap();
    disk.inject(Fault::BadSectors { path: path("f"), from: 1_024, to: 2_048 });
    let check = |disk: &SimDisk, at: u64, expect: Result<usize, i32>| {
        let file = disk.open(&path("f")).unwrap();
        let found = file.read_at(at, &mut [0; 1_500]);
        assert_eq!(found.map_err(|error| error.raw_os_error().unwrap()), expect, "at {at}");
    };
    let next = disk.crash(&mut Rng::new(0));
    check(&next, 0, Ok(1_024));
    check(&next, 1_000, Ok(24));
    check(&next, 1_024, Err(EIO));
    check(&next, 2_047, Err(EIO));
    check(&next, 2_048, Ok(952));
    next.heal();
    check(&next, 1_024, Ok(1_500));
}

#[test]
fn a_full_disk_refuses_maps_whole_and_appends_in_part() {
    let disk = disk();
    disk.set_capacity(10_000);
    let map = disk.create_map(&path("a"), 6_000).unwrap();
    assert_eq!(disk.space(dir()).unwrap(), Space { free_bytes: 4_000, total_bytes: 10_000 });
    let error = disk.create_map(&path("b"), 4_001).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.files(), [path("a")]);
    let mut file = disk.create(&path("c")).unwrap();
    assert_eq!(file.append(&[1; 5_000]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(read(&disk, "c").unwrap(), [1; 4_000]);
    // A mapped file keeps its blocks until the last reference goes.
    disk.remove(&path("a")).unwrap();
    assert_eq!(disk.space(dir()).unwrap().free_bytes, 0);
    drop(map);
    assert_eq!(disk.space(dir()).unwrap().free_bytes, 6_000);
    let reader = disk.open(&path("c")).unwrap();
    drop(file);
    disk.remove(&path("c")).unwrap();
    assert_eq!(disk.space(dir()).unwrap().free_bytes, 6_000);
    drop(reader);
    assert_eq!(disk.space(dir()).unwrap().free_bytes, 10_000);
}

#[test]
fn a_removed_file_may_return_until_the_directory_is_synced() {
    let disk = disk();
    disk.publish(&path("f"), b"f").unwrap();
    disk.remove(&path("f")).unwrap();
    assert_eq!(read(&disk, "f").unwrap_err().kind(), io::ErrorKind::NotFound);
    let seen = outcomes(&disk, |disk| read(&disk, "f").ok());
    assert_eq!(seen, [None, Some(b"f".to_vec())].into());
    disk.publish(&path("g"), b"g").unwrap();
    assert_eq!(outcomes(&disk, |disk| read(&disk, "f").ok()), [None].into());
}

#[test]
fn a_cut_is_durable_when_it_returns_and_either_way_before() {
    let disk = disk();
    disk.publish(&path("f"), b"123456").unwrap();
    let torn = disk.fork();
    torn.inject(Fault::Stop { at: torn.ops() + 1 });
    assert_eq!(sim_error(torn.truncate(&path("f"), 2)), Some(SimError::Stopped));
    let seen = outcomes(&torn, |disk| read(&disk, "f").unwrap());
    assert_eq!(seen, [b"12".to_vec(), b"123456".to_vec()].into());
    disk.truncate(&path("f"), 2).unwrap();
    assert_eq!(outcomes(&disk, |disk| read(&disk, "f").unwrap()), [b"12".to_vec()].into());
}

#[test]
fn calls_that_make_no_sense_fail_as_on_a_real_disk() {
    let kind = |result: io::Result<()>| result.unwrap_err().kind();
    let disk = disk();
    disk.publish(&path("f"), b"1").unwrap();
    let elsewhere = Path::new("/none/f");
    assert_eq!(kind(disk.create(elsewhere).map(drop)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.create_map(elsewhere, 1).map(drop)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.create_map(&path("f"), 1).map(drop)), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.open(elsewhere).map(drop)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.remove(elsewhere)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.rename(&path("x"), &path("y"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.truncate(&path("f"), 2)), io::ErrorKind::InvalidInput);
    assert_eq!(kind(disk.create_dir(&path("f"))), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.list(Path::new("/none")).map(drop)), io::ErrorKind::NotFound);
    let map = disk.create_map(&path("s"), 10).unwrap();
    assert_eq!(kind(disk.sync_map(map.map(), 0, 11)), io::ErrorKind::InvalidInput);
}

#[test]
fn a_directory_goes_with_all_that_might_return_in_it() {
    let disk = disk();
    let inner = dir().join("inner");
    let name = inner.join("f");
    disk.create_dir(&inner).unwrap();
    disk.publish(&name, b"1").unwrap();
    assert_eq!(disk.list_dirs(dir()).unwrap(), ["inner"]);
    assert_eq!(disk.remove_dir(&inner).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
    disk.remove(&name).unwrap();
    disk.remove_dir(&inner).unwrap();
    assert_eq!(disk.list_dirs(dir()).unwrap(), [""; 0]);
    assert_eq!(disk.remove_dir(&inner).unwrap_err().kind(), io::ErrorKind::NotFound);
    let left = outcomes(&disk, |disk| disk.files().contains(&name));
    assert_eq!(left, [false].into());
}

#[test]
fn names_are_durable_once_their_directory_is_synced() {
    let disk = disk();
    let mut file = disk.create(&path("a")).unwrap();
    file.sync().unwrap();
    let is_there = |disk: SimDisk| disk.files().contains(&path("a"));
    assert_eq!(outcomes(&disk, is_there), [false, true].into());
    disk.sync_dir(dir()).unwrap();
    assert_eq!(outcomes(&disk, is_there), [true].into());
}

/// A step of the property test, with small numbers so that they meet.
#[derive(Clone, Debug)]
enum Step {
    Publish { name: u8, bytes: Vec<u8> },
    Remove { name: u8 },
    SyncNames,
    Store { at: u16, byte: u8 },
    SyncMap { from: u16, to: u16 },
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3u8, prop::collection::vec(any::<u8>(), 0..9))
            .prop_map(|(name, bytes)| Step::Publish { name, bytes }),
        (0..3u8).prop_map(|name| Step::Remove { name }),
        Just(Step::SyncNames),
        (0..20_000u16, 1..=255u8).prop_map(|(at, byte)| Step::Store { at, byte }),
        (0..20_000u16, 0..20_000u16).prop_map(|(from, to)| Step::SyncMap { from, to }),
        Just(Step::Kill),
    ]
}

/// What the contract promises, without pages, sectors or an order of writes.
#[derive(Default)]
struct Model {
    /// Files that must be there, with their bytes; a removed one may be either way.
    files: BTreeMap<u8, Vec<u8>>,
    removed: BTreeMap<u8, Vec<u8>>,
    /// By place in the map: every byte it may hold, the one a process reads last.
    bytes: BTreeMap<usize, Vec<u8>>,
}

impl Model {
    fn check_after_crash(&self, disk: &SimDisk) {
        for name in 0..3 {
            let found = read(disk, &name.to_string()).ok();
            let kept = self.files.get(&name);
            if kept.is_some() || found.is_some() {
                let right = kept.or(self.removed.get(&name));
                assert_eq!(found.as_ref(), right, "file {name}");
            }
        }
        let map = read(disk, "map").unwrap();
        for (at, byte) in map.iter().enumerate() {
            let may = self.bytes.get(&at).map_or(&[0][..], Vec::as_slice);
            assert!(may.contains(byte), "byte {byte} at {at}, not of {may:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_power_loss_takes_nothing_that_was_synced_and_adds_nothing(
        steps in prop::collection::vec(step(), 0..40),
        seed in any::<u64>(),
        write_back in 0..4u64,
    ) {
        let mut disk = SimDisk::new(seed);
        disk.create_dir(dir()).unwrap();
        disk.set_write_back(write_back);
        let mut model = Model::default();
        let mut writer = Some(disk.create_map(&path("map"), 20_000).unwrap());
        for step in steps {
            match step {
                Step::Publish { name, bytes } => {
                    disk.publish(&path(&name.to_string()), &bytes).unwrap();
                    model.files.insert(name, bytes);
                    model.removed.clear();
                }
                Step::Remove { name } => {
                    let found = disk.remove(&path(&name.to_string())).is_ok();
                    prop_assert_eq!(found, model.files.contains_key(&name));
                    if let Some(bytes) = model.files.remove(&name) {
                        model.removed.insert(name, bytes);
                    }
                }
                Step::SyncNames => {
                    disk.publish(&path("other"), b"").unwrap();
                    model.removed.clear();
                }
                Step::Store { at, byte } => {
                    if let Some(writer) = &mut writer {
                        writer.store(at.into(), &[byte]);
                        model.bytes.entry(at.into()).or_insert_with(|| vec![0]).push(byte);
                    }
                }
                Step::SyncMap { from, to } => {
                    if let Some(writer) = writer.as_ref().filter(|_| from < to) {
                        disk.sync_map(writer.map(), from.into(), to.into()).unwrap();
                        let (from, to) = (usize::from(from), usize::from(to));
                        for (_, may) in model.bytes.range_mut(from..to) {
                            *may = may.split_off(may.len() - 1);
                        }
                    }
                }
                Step::Kill => {
                    disk = disk.kill();
                    writer = None;
                }
            }
            let map = read(&disk, "map").unwrap();
            for (at, may) in &model.bytes {
                prop_assert_eq!(map.get(*at), may.last());
            }
        }
        for crash in 0..4 {
            model.check_after_crash(&disk.fork().crash(&mut Rng::new(seed ^ crash)));
        }
    }

    #[test]
    fn a_seed_gives_the_same_disk(seed in any::<u64>()) {
        let run = || {
            let disk = SimDisk::new(seed);
            disk.create_dir(dir()).unwrap();
            disk.set_write_back(2);
            let mut writer = disk.create_map(&path("map"), 40_000).unwrap();
            writer.store(0, &[1; 30_000]);
            disk.publish(&path("f"), &[2; 9_000]).unwrap();
            disk.remove(&path("f")).unwrap();
            let disk = disk.crash(&mut Rng::new(seed));
            let files = disk.files().into_iter().map(|path| (disk.durable(&path), path));
            files.collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
