//! What a member knows of its group's log: in memory for raft-rs, as records for the write-ahead log.
//!
//! A record is `u32 size` of what follows, `u64 group`, `u8 kind`, body. Checksums are those of the file around it.
//!
//!     HARD        u64 term, u64 vote, u64 commit
//!     ENTRY       an entry (see codec.rs); one with a lower index than the last replaces it and all behind it
//!     CHECKPOINT  u64 own id, u64 index, u64 term, u64 last index of the log, configuration, u32 size and note:
//!                 what was applied up to `index` is kept elsewhere
//!     GONE        (nothing): the group was removed from this server
//!     FORGOT      u64 own id: this member lost some of its log, and must not speak for this id again
//!     GROUPS      u64 each: all groups that there are; what follows says CHECKPOINT and HARD, or FORGOT, of each
//!
//! Replaying what was damaged or begins in the middle: whoever does not have every entry behind the last checkpoint, or
//! may have missed a vote, has *forgotten* (`Found::is_whole`). Later records can make up for a gap: see `Found::mend`.

use std::collections::{BTreeMap, VecDeque};

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::codec::{put_conf, put_entry, put_u64s, read_conf, read_entry, Decoded, Reader};

pub const HARD: u8 = 1;
pub const ENTRY: u8 = 2;
pub const CHECKPOINT: u8 = 3;
pub const GONE: u8 = 4;
pub const FORGOT: u8 = 6;
pub const GROUPS: u8 = 7;

/// The entries behind `base`, and what is durable by other means (`checkpoint`, at `base` or behind it).
#[derive(Default)]
pub struct Log {
    pub id: u64,
    pub hard: HardState,
    pub entries: VecDeque<Entry>,
    pub base: u64,
    pub base_term: u64,
    pub size: usize,
    pub checkpoint: u64,
    pub checkpoint_term: u64,
    pub conf: ConfState, // at the checkpoint
    pub note: Vec<u8>,
}

impl Log {
    pub fn last(&self) -> u64 {
        self.base + self.entries.len() as u64
    }
    pub fn term_at(&self, index: u64) -> Option<u64> {
        match index.checked_sub(self.base)? {
            0 => Some(self.base_term),
            n => self.entries.get(n as usize - 1).map(|entry| entry.term),
        }
    }
    pub fn append(&mut self, entry: &Entry) {
        let keep = (entry.index - self.base - 1) as usize;
        for old in self.entries.drain(keep..) {
            self.size -= old.data.len();
        }
        self.size += entry.data.len();
        self.entries.push_back(entry.clone());
    }
    /// Forget the first entry.
    pub fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.size -= entry.data.len();
            (self.base, self.base_term) = (entry.index, entry.term);
        }
    }
    /// Begin anew behind an index.
    pub fn restart(&mut self, index: u64, term: u64) {
        self.entries.clear();
        self.size = 0;
        (self.base, self.base_term) = (index, term);
    }

    pub fn put_hard(&self, out: &mut Vec<u8>, group: u64) {
        let hard = &self.hard;
        put_record(out, group, HARD, |b| put_u64s(b, &[hard.term, hard.vote, hard.commit]));
    }
    pub fn put_checkpoint(&self, out: &mut Vec<u8>, group: u64) {
        put_record(out, group, CHECKPOINT, |b| {
            put_u64s(b, &[self.id, self.checkpoint, self.checkpoint_term, self.last()]);
            put_conf(b, &self.conf);
            b.extend_from_slice(&(self.note.len() as u32).to_le_bytes());
            b.extend_from_slice(&self.note);
        });
    }
}

pub fn put_record(out: &mut Vec<u8>, group: u64, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    crate::codec::put_frame(out, group, |b| {
        b.push(kind);
        body(b);
    });
}

pub fn put_entries(out: &mut Vec<u8>, group: u64, entries: &[Entry]) {
    for entry in entries {
        put_record(out, group, ENTRY, |b| put_entry(b, entry));
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.conf.clone()))
    }
    fn entries(
        &self, low: u64, high: u64, size_max: impl Into<Option<u64>>, _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base {
            return Err(Error::Store(StorageError::Compacted));
        }
        let size_max = size_max.into().unwrap_or(u64::MAX);
        let (mut size, mut out) = (0, Vec::new());
        for index in low..high {
            let entry = &self.entries[(index - self.base - 1) as usize];
            size += entry.data.len() as u64 + 32;
            if !out.is_empty() && size > size_max {
                break;
            }
            out.push(entry.clone()); // its data is shared, not copied
        }
        Ok(out)
    }
    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = if index < self.base { StorageError::Compacted } else { StorageError::Unavailable };
        self.term_at(index).ok_or(Error::Store(missing))
    }
    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base + 1)
    }
    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }
    /// What a member needs at least that is too far behind: where it gets that is the application's affair.
    fn snapshot(&self, request: u64, _to: u64) -> raft::Result<Snapshot> {
        if request > self.checkpoint {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        let mut snapshot = Snapshot::default();
        let meta = snapshot.mut_metadata();
        meta.index = self.checkpoint;
        meta.term = self.checkpoint_term;
        meta.set_conf_state(self.conf.clone());
        Ok(snapshot)
    }
}

/// A group as the write-ahead log has it so far.
#[derive(Default)]
pub struct Found {
    pub log: Log,
    has_gap: bool,  // entries before those that are held are missing, or there may be more behind them
    has_hard: bool, // the hard state is the latest
    forgot: bool,   // somebody has said so
}

impl Found {
    pub fn of(log: Log) -> Self {
        Found { log, has_gap: false, has_hard: true, forgot: false }
    }
    pub fn forgotten(id: u64) -> Self {
        Found { forgot: true, ..Found::of(Log { id, ..Log::default() }) }
    }
    pub fn is_whole(&self) -> bool {
        let commits_more = self.log.hard.commit > self.log.last();
        !self.forgot && !self.has_gap && self.has_hard && !commits_more
    }
    fn gap(&mut self) {
        let (base, term) = (self.log.base, self.log.base_term);
        self.log.restart(base, term);
        self.has_gap = true;
    }
    fn entry(&mut self, entry: &Entry) {
        if entry.index > self.log.last() + 1 || entry.index <= self.log.base {
            self.gap();
        }
        if self.has_gap && self.log.entries.is_empty() {
            self.log.restart(entry.index - 1, 0);
        }
        self.log.append(entry);
        self.mend();
    }
    fn checkpoint(&mut self, index: u64, term: u64, last: u64) {
        let log = &mut self.log;
        (log.checkpoint, log.checkpoint_term) = (index, term);
        if index > log.base && log.term_at(index) == Some(term) {
            while log.base < index {
                log.pop();
            }
        } else if index > log.base || log.entries.is_empty() {
            log.restart(index, term);
        }
        if index == last {
            self.log.restart(index, term);
            self.has_gap = false; // there was nothing to miss
        } else if self.log.last() != last {
            self.gap();
        }
        self.mend();
    }
    /// The entries behind a gap are enough when they go on from the checkpoint.
    fn mend(&mut self) {
        let goes_on = self.log.id != 0 && self.log.base <= self.log.checkpoint;
        if self.has_gap && goes_on && !self.log.entries.is_empty() {
            while self.log.base < self.log.checkpoint && !self.log.entries.is_empty() {
                self.log.pop();
            }
            if self.log.base == self.log.checkpoint {
                self.log.base_term = self.log.checkpoint_term;
                self.has_gap = false;
            }
        }
    }
}

pub type Replayed = BTreeMap<u64, Found>;

/// Something that was written cannot be read: no group has all that it had, unless what follows says it once more.
pub fn damage(found: &mut Replayed) {
    for group in found.values_mut() {
        group.gap();
        group.has_hard = false;
    }
}

/// Take in the records of one write. `seen` gets the highest index of each group's entries.
pub fn replay(found: &mut Replayed, data: &[u8], seen: &mut BTreeMap<u64, u64>) -> Decoded<()> {
    let mut from = Reader::new(data);
    while !from.is_empty() {
        let size = from.u32()? as usize;
        let mut record = Reader::new(from.bytes(size)?);
        let group = record.u64()?;
        match record.u8()? {
            HARD => {
                let known = found.entry(group).or_insert_with(unknown);
                known.log.hard.term = record.u64()?;
                known.log.hard.vote = record.u64()?;
                known.log.hard.commit = record.u64()?;
                known.has_hard = true;
            }
            ENTRY => {
                let entry = read_entry(&mut record)?;
                if entry.index == 0 {
                    return Err("an entry without an index");
                }
                let highest = seen.entry(group).or_default();
                *highest = entry.index.max(*highest);
                found.entry(group).or_insert_with(unknown).entry(&entry);
            }
            CHECKPOINT => {
                let (id, index, term, last) = (record.u64()?, record.u64()?, record.u64()?, record.u64()?);
                let conf = read_conf(&mut record)?;
                let size = record.u32()? as usize;
                let note = record.bytes(size)?.to_vec();
                let known = found.entry(group).or_insert_with(unknown);
                if known.forgot || (known.log.id != 0 && known.log.id != id) {
                    *known = unknown(); // another incarnation; its hard state follows
                }
                (known.log.id, known.log.conf, known.log.note) = (id, conf, note);
                known.checkpoint(index, term, last);
            }
            GONE => {
                found.remove(&group);
            }
            FORGOT => {
                found.insert(group, Found::forgotten(record.u64()?));
            }
            GROUPS => {
                let mut all = Vec::new();
                while !record.is_empty() {
                    all.push(record.u64()?);
                }
                found.retain(|group, _| all.contains(group));
            }
            _ => return Err("a record of an unknown kind"),
        }
    }
    Ok(())
}

/// A group of which the beginning is not there.
fn unknown() -> Found {
    Found { has_gap: true, ..Found::default() }
}
