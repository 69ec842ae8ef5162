//! Consensus for JetLake's groups: raft-rs, driven one turn at a time. There are no threads, files, sockets or clocks in here.
//!
//! A turn: `ready` gives bytes for the write-ahead log and messages that may go out at once (a leader's entries);
//! once the bytes are durable, `persisted` gives the messages that waited for that, and whatever was committed. `ready`
//! may be called again before that; turns become durable in order.
//!
//! A raft id is a node's number times 65,536 plus its incarnation in that group. Messages go by node.
//!
//! Works around raft 0.7.0: messages of a connection that has a successor are dropped (a reordered probe can step below
//! what is matched); `batch_append` is off, since it can join entries that do not follow each other; election timeouts are drawn from the engine's seed; a member that has less log than it acknowledged
//! is reported as *forgotten* (raft-rs would panic); only `checkpoint` compacts, and never past what was applied; the
//! priority is 0, or -1 for a member that is about to leave. A panic is a bug, and must end the process.

mod codec;
mod group;
mod log;
mod peers;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use raft::eraftpb::{ConfChangeType, ConfChangeV2, Entry, EntryType};

use codec::{put_conf, put_frame, put_u64s, read_conf, Reader};
use group::{node_of, Dice, Group, Out};
use log::{put_record, Found, Log, Replayed, FORGOT, GONE, GROUPS};

const CONTROL_COPY_FAILED: u8 = 32; // u64 id: this member could not copy what it was sent for
const CONTROL_JOIN: u8 = 33; // u64 old id, u64 new id: a member that forgot asks to be taken in anew
const CONTROL_PING: u8 = 34; // nothing: the node is there
const FRAME_SIZE_MAX: usize = 256 << 20;
const FIRST_INDEX: u64 = 1; // a new group begins behind it, so that who joins later has to copy

type Sent<'p> = Vec<(u64, Bound<'p, PyBytes>)>;
type Applied<'p> = Vec<(u64, u64, u64, Bound<'p, PyBytes>)>;

/// What is to be told with the next `persisted`.
#[derive(Default)]
struct News {
    committed: Vec<(u64, Entry)>,
    roles: Vec<(u64, u64, bool, u64)>, // group, term, whether this member leads, who leads
    reads: Vec<(u64, u64, u64)>,       // group, index, token
    wanted: Vec<(u64, u64, u64)>,      // group, the leader's id, index that a copy must have at least
    forgotten: Vec<u64>,
    confs: Vec<(u64, u64, Vec<u64>, Vec<u64>)>, // group, index, voters, learners
    joins: Vec<(u64, u64, u64)>,                // group, old id, new id
}

struct Turn {
    number: u64,
    readies: Vec<(u64, u64, u64)>, // group, number of raft's ready, index of a snapshot in it
    later: Out,
}

#[pyclass(unsendable)]
struct Engine {
    node: u64,
    election: usize,
    heartbeat: usize,
    keep_size: usize,
    keep_total: usize,
    dice: Dice,
    found: Replayed, // groups that are not open
    groups: BTreeMap<u64, Group>,
    dirty: BTreeSet<u64>,
    epochs: BTreeMap<u64, u64>, // of the connection with each peer
    down: BTreeSet<u64>,
    wal: Vec<u8>, // what the next turn writes first
    out: Out,     // what the next turn sends first
    turn: u64,
    turns: VecDeque<Turn>,
    written: BTreeMap<u64, u64>, // the highest index of each group's entries that `ready` gave
    news: News,
}

fn bad(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (node, election_tick, heartbeat_tick, seed, keep_size=64 << 20, keep_total=512 << 20))]
    fn new(
        node: u64, election_tick: usize, heartbeat_tick: usize, seed: u64, keep_size: usize, keep_total: usize,
    ) -> PyResult<Self> {
        if node == 0 || node >> 48 != 0 {
            return Err(bad("a node's number is from 1 to 2**48 - 1"));
        }
        if heartbeat_tick == 0 || election_tick <= heartbeat_tick {
            return Err(bad("an election takes more ticks than a heartbeat, and that at least one"));
        }
        let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ node.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        Ok(Engine {
            node,
            election: election_tick,
            heartbeat: heartbeat_tick,
            keep_size,
            keep_total,
            dice: Dice(mixed | 1),
            found: BTreeMap::new(),
            groups: BTreeMap::new(),
            dirty: BTreeSet::new(),
            epochs: BTreeMap::new(),
            down: BTreeSet::new(),
            wal: vec![],
            out: Out::new(),
            turn: 0,
            turns: VecDeque::new(),
            written: BTreeMap::new(),
            news: News::default(),
        })
    }

    // What the write-ahead log has

    /// Take in what one write of the log holds; the highest index of each group's entries in it.
    fn replay(&mut self, data: &[u8]) -> PyResult<BTreeMap<u64, u64>> {
        let mut seen = BTreeMap::new();
        log::replay(&mut self.found, data, &mut seen).map_err(bad)?;
        Ok(seen)
    }
    /// Something between what was replayed and what follows cannot be read.
    fn damage(&mut self) {
        log::damage(&mut self.found);
    }
    /// Records that say where each group stands, for the beginning of a segment. They go behind all that `ready` gave.
    fn heads<'p>(&self, py: Python<'p>) -> Bound<'p, PyBytes> {
        let mut out = vec![];
        let running = self.groups.iter().filter(|(_, group)| !group.is_volatile);
        let all: Vec<u64> = self.found.keys().copied().chain(running.clone().map(|(id, _)| *id)).collect();
        put_record(&mut out, 0, GROUPS, |b| put_u64s(b, &all));
        let mut put = |id: u64, log: &Log| {
            log.put_checkpoint(&mut out, id);
            log.put_hard(&mut out, id);
        };
        running.for_each(|(id, group)| put(*id, group.log()));
        self.found.iter().filter(|(_, found)| found.is_whole()).for_each(|(id, found)| put(*id, &found.log));
        for (id, found) in self.found.iter().filter(|(_, found)| !found.is_whole()) {
            put_record(&mut out, *id, FORGOT, |b| put_u64s(b, &[found.log.id]));
        }
        PyBytes::new(py, &out)
    }
    /// The highest index of each group's entries that `ready` gave for the log since this was last asked.
    fn written(&mut self) -> BTreeMap<u64, u64> {
        std::mem::take(&mut self.written)
    }
    /// Up to where each group needs nothing of the log. Groups that forgot need none of it.
    fn checkpoints(&self) -> BTreeMap<u64, u64> {
        let found = self.found.iter().filter(|(_, found)| found.is_whole());
        let found = found.map(|(id, found)| (*id, found.log.checkpoint));
        found.chain(self.groups.iter().map(|(id, member)| (*id, member.log().checkpoint))).collect()
    }
    /// Groups with their own id, the index of their checkpoint, its note, whether they are open, and whether they forgot.
    fn groups<'p>(&self, py: Python<'p>) -> Vec<(u64, u64, u64, Bound<'p, PyBytes>, bool, bool)> {
        let row = |id: u64, log: &Log, is_open: bool, forgot: bool| {
            (id, log.id, log.checkpoint, PyBytes::new(py, &log.note), is_open, forgot)
        };
        let found = self.found.iter().map(|(id, found)| row(*id, &found.log, false, !found.is_whole()));
        let running = self.groups.iter().map(|(id, group)| row(*id, group.log(), true, false));
        found.chain(running).collect()
    }

    // Groups

    /// Take part in a group; False when this member forgot some of its log, or is not there and not new.
    ///
    /// A group that is in the log goes on from there; the application has what was applied up to `applied`. A new one begins
    /// with these members, all of them at the same index. Without voters it waits until a leader takes it in.
    #[pyo3(signature = (group, self_id, voters, learners, applied=0, is_new=true, is_volatile=false))]
    #[allow(clippy::too_many_arguments)]
    fn open(
        &mut self, group: u64, self_id: u64, voters: Vec<u64>, learners: Vec<u64>, applied: u64, is_new: bool,
        is_volatile: bool,
    ) -> PyResult<bool> {
        if self.groups.contains_key(&group) {
            return Err(bad(format!("group {group} is open")));
        }
        if node_of(self_id) != self.node || self_id & 0xFFFF == 0 {
            return Err(bad(format!("raft id {self_id} is not of node {}", self.node)));
        }
        let log = match self.found.get(&group) {
            Some(found) if found.log.id == self_id => {
                if !found.is_whole() || applied > found.log.last() {
                    return Ok(false);
                }
                let mut log = self.found.remove(&group).expect("just seen").log;
                log.hard.commit = log.hard.commit.max(log.base).max(applied);
                log
            }
            Some(found) if found.log.id > self_id || (found.log.id == 0 && !voters.is_empty()) => return Ok(false),
            None if !is_new => return Ok(false),
            _ => {
                self.found.remove(&group);
                let log = new_log(self_id, voters, learners);
                if !is_volatile {
                    log.put_checkpoint(&mut self.wal, group);
                    log.put_hard(&mut self.wal, group);
                }
                log
            }
        };
        let skip = applied.max(log.base);
        let mut member = Group::new(log, skip, self.election, self.heartbeat, is_volatile)
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        member.settle(&mut self.dice);
        self.groups.insert(group, member);
        self.dirty.insert(group);
        Ok(true)
    }
    /// The raft id that this node has in a group, as far as the log says; 0 for a group that is not there.
    fn own_id(&self, group: u64) -> u64 {
        let running = self.groups.get(&group).map(|member| member.log().id);
        running.or_else(|| self.found.get(&group).map(|found| found.log.id)).unwrap_or(0)
    }
    /// Take part no more until it is opened again.
    fn close(&mut self, group: u64) -> PyResult<()> {
        let mut member = self.groups.remove(&group).ok_or_else(|| no_group(group))?;
        self.purge(group);
        if !member.is_volatile {
            self.found.insert(group, Found::of(std::mem::take(member.node.mut_store())));
        }
        Ok(())
    }
    /// Remove a group from this server, for good.
    fn destroy(&mut self, group: u64) {
        self.groups.remove(&group);
        self.found.remove(&group);
        self.purge(group);
        put_record(&mut self.wal, group, GONE, |_| {});
    }

    /// The index of an entry if it is committed in this term; 0 when this member does not lead, or too much is uncommitted.
    fn propose(&mut self, group: u64, data: &[u8]) -> PyResult<u64> {
        let member = self.open_group(group)?;
        if !member.is_leader() {
            return Ok(0);
        }
        match member.node.propose(vec![], data.to_vec()) {
            Ok(()) => {
                let index = member.node.raft.raft_log.last_index();
                self.dirty.insert(group);
                Ok(index)
            }
            Err(_) => Ok(0),
        }
    }
    /// Change who is a member, in one step; False when this member does not lead, or another change is under way.
    fn change(&mut self, group: u64, add: Vec<u64>, remove: Vec<u64>, learners: Vec<u64>) -> PyResult<bool> {
        let member = self.open_group(group)?;
        let raft = &member.node.raft;
        let is_joint = !raft.prs().conf().to_conf_state().voters_outgoing.is_empty();
        if !member.is_leader() || is_joint || raft.pending_conf_index > raft.raft_log.applied {
            return Ok(false);
        }
        let kinds = [
            (add, ConfChangeType::AddNode),
            (remove, ConfChangeType::RemoveNode),
            (learners, ConfChangeType::AddLearnerNode),
        ];
        let singles = kinds.iter().flat_map(|(ids, kind)| ids.iter().map(|id| codec::single_change(*kind, *id)));
        let mut change = ConfChangeV2::default();
        change.set_changes(singles.collect::<Vec<_>>().into());
        if change.changes.is_empty() {
            return Err(bad("a change that changes nothing"));
        }
        let is_taken = member.node.propose_conf_change(vec![], change).is_ok();
        self.dirty.insert(group);
        Ok(is_taken)
    }
    /// Let another member lead.
    fn transfer(&mut self, group: u64, to: u64) -> PyResult<()> {
        self.open_group(group)?.node.transfer_leader(to);
        self.dirty.insert(group);
        Ok(())
    }
    /// Try to lead.
    fn campaign(&mut self, group: u64) -> PyResult<()> {
        let member = self.groups.get_mut(&group).ok_or_else(|| no_group(group))?;
        member.campaign(&mut self.dice);
        self.dirty.insert(group);
        Ok(())
    }
    /// Lead no more: the member that has most takes over, if there is one.
    fn step_down(&mut self, group: u64) -> PyResult<()> {
        let down = self.down.clone();
        let member = self.open_group(group)?;
        if member.is_leader() {
            let raft = &mut member.node.raft;
            let (own, term) = (raft.id, raft.term);
            let voters = raft.prs().conf().to_conf_state().voters;
            let others = voters.iter().filter(|id| **id != own && !down.contains(&node_of(**id)));
            let matched = |id: &u64| raft.prs().get(*id).map_or(0, |progress| progress.matched);
            match others.max_by_key(|id| (matched(id), u64::MAX - **id)).copied() {
                Some(best) => member.node.transfer_leader(best),
                None => raft.become_follower(term, 0),
            }
        }
        self.dirty.insert(group);
        self.settle(group);
        Ok(())
    }
    /// Whether this member should not lead any more, since it is about to leave.
    fn retiring(&mut self, group: u64, is_retiring: bool) -> PyResult<()> {
        self.open_group(group)?.node.set_priority(if is_retiring { -1 } else { 0 });
        Ok(())
    }
    /// Ask for an index that a read must have been applied up to; False when this member cannot tell.
    fn read_index(&mut self, group: u64, token: u64) -> PyResult<bool> {
        let member = self.open_group(group)?;
        if !member.is_leader() || !member.node.raft.commit_to_current_term() {
            return Ok(false);
        }
        member.node.read_index(token.to_le_bytes().to_vec());
        self.dirty.insert(group);
        Ok(true)
    }

    // Peers

    /// A connection with a peer is there. What comes from an earlier one is not heard any more.
    fn peer_up(&mut self, peer: u64, epoch: u64) {
        let latest = self.epochs.entry(peer).or_default();
        *latest = epoch.max(*latest);
        self.down.remove(&peer);
        self.peer_moved(peer, true);
    }
    /// A peer is down for sure. Groups that it led look for another leader at once.
    fn peer_down(&mut self, peer: u64) {
        self.down.insert(peer);
        self.peer_moved(peer, false);
        for (id, member) in self.groups.iter_mut() {
            if member.leader_is_down(&self.down, &mut self.dice) {
                self.dirty.insert(*id);
            }
        }
    }
    /// What was sent to a peer last may be lost.
    fn unreachable(&mut self, peer: u64) {
        self.peer_moved(peer, false);
    }
    /// Take in whole frames from a peer; how many bytes they were. ValueError for what no peer of ours would send.
    fn feed(&mut self, peer: u64, epoch: u64, data: &[u8]) -> PyResult<usize> {
        let is_stale = self.epochs.get(&peer).is_some_and(|latest| epoch < *latest);
        let mut used = 0;
        while data.len() - used >= 4 {
            let size = u32::from_le_bytes(data[used..used + 4].try_into().unwrap()) as usize;
            if !(9..=FRAME_SIZE_MAX).contains(&size) {
                return Err(bad(format!("peer {peer}: a frame of {size} bytes")));
            }
            if size > data.len() - used - 4 {
                break;
            }
            let frame = &data[used + 4..used + 4 + size];
            used += 4 + size;
            if !is_stale {
                let group = u64::from_le_bytes(frame[..8].try_into().unwrap());
                self.take(peer, group, &frame[8..]).map_err(|problem| bad(format!("peer {peer}: {problem}")))?;
            }
        }
        Ok(used)
    }
    /// Time passes.
    fn tick(&mut self) {
        for (id, member) in self.groups.iter_mut() {
            if member.tick(&mut self.dice) {
                self.dirty.insert(*id);
            }
        }
    }
    /// Ask other nodes for a place in a group under a new id.
    fn join(&mut self, group: u64, old: u64, new: u64, nodes: Vec<u64>) {
        for node in nodes {
            put_frame(self.out.entry(node).or_default(), group, |b| {
                b.push(CONTROL_JOIN);
                put_u64s(b, &[old, new]);
            });
        }
    }

    // Turns

    /// Whether there is something to do.
    fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.wal.is_empty() || !self.out.is_empty()
    }
    /// Begin a turn: its number, bytes for the log (none: it is durable already), and messages that may be sent at once.
    fn ready<'p>(&mut self, py: Python<'p>) -> (u64, Bound<'p, PyBytes>, Sent<'p>) {
        let (wal, now) = self.begin_turn();
        (self.turn, PyBytes::new(py, &wal), sent(py, now))
    }
    /// Turns up to this one are durable: messages that waited for that, committed entries, roles, reads, wanted copies,
    /// groups that forgot, changed configurations, requests to join. May be called again for what `ready` found since.
    #[allow(clippy::type_complexity)]
    fn persisted<'p>(
        &mut self, py: Python<'p>, turn: u64,
    ) -> PyResult<(
        Sent<'p>,
        Applied<'p>,
        Vec<(u64, u64, bool, u64)>,
        Vec<(u64, u64, u64)>,
        Vec<(u64, u64, u64)>,
        Vec<u64>,
        Vec<(u64, u64, Vec<u64>, Vec<u64>)>,
        Vec<(u64, u64, u64)>,
    )> {
        let messages = self.end_turns(turn).into_iter().flat_map(|out| sent(py, out)).collect();
        let news = std::mem::take(&mut self.news);
        let (mut applied, mut confs) = (vec![], news.confs);
        for (id, entry) in news.committed {
            if let Some(conf) = self.apply(id, &entry).map_err(bad)? {
                confs.push((id, entry.index, sorted(conf.voters), sorted(conf.learners)));
            }
            if self.groups.get(&id).is_some_and(|member| entry.index > member.skip) {
                let is_data = entry.get_entry_type() == EntryType::EntryNormal;
                let data: &[u8] = if is_data { &entry.data } else { b"" };
                applied.push((id, entry.index, entry.term, PyBytes::new(py, data)));
            }
        }
        Ok((messages, applied, news.roles, news.reads, news.wanted, news.forgotten, confs, news.joins))
    }

    // Where a group stands

    /// What was applied up to an index is durable by other means. The log keeps a part of it for peers that are behind.
    #[pyo3(signature = (group, index, note=vec![]))]
    fn checkpoint(&mut self, group: u64, index: u64, note: Vec<u8>) -> PyResult<()> {
        let member = self.groups.get_mut(&group).ok_or_else(|| no_group(group))?;
        let (applied, log) = (member.node.raft.raft_log.applied, member.log());
        if index > applied && index <= member.skip {
            member.note = Some((index, note)); // what the application had before the log: as soon as the log is there
            return Ok(());
        }
        if index > applied {
            return Err(bad(format!("group {group}: a checkpoint at {index}, and {applied} is applied")));
        }
        if index < log.checkpoint || (index == log.checkpoint && note == log.note) {
            return Ok(());
        }
        member.checkpoint(index, note);
        if !member.is_volatile {
            member.log().put_checkpoint(&mut self.wal, group);
        }
        self.compact(group);
        Ok(())
    }
    /// The state of another member at an index is durable here; False when this member got there by itself.
    fn install(&mut self, group: u64, index: u64, term: u64, conf: &[u8], note: Vec<u8>) -> PyResult<bool> {
        let conf = read_conf(&mut Reader::new(conf)).map_err(bad)?;
        let member = self.groups.get_mut(&group).ok_or_else(|| no_group(group))?;
        let is_taken = member.install(index, term, conf, note, &mut self.dice);
        self.dirty.insert(group);
        Ok(is_taken)
    }
    /// A copy did not succeed: the leader may send this member for another.
    fn copy_failed(&mut self, group: u64) -> PyResult<()> {
        let member = self.groups.get_mut(&group).ok_or_else(|| no_group(group))?;
        member.is_copying = false;
        let (id, leader) = (member.node.raft.id, member.node.raft.leader_id);
        if leader != 0 && leader != id {
            put_frame(self.out.entry(node_of(leader)).or_default(), group, |b| {
                b.push(CONTROL_COPY_FAILED);
                put_u64s(b, &[id]);
            });
        }
        Ok(())
    }
    /// What a copy of this member's state has to say: index and term of what was applied last, and the configuration.
    fn position<'p>(&mut self, py: Python<'p>, group: u64) -> PyResult<(u64, u64, Bound<'p, PyBytes>)> {
        let member = self.open_group(group)?;
        let applied = member.node.raft.raft_log.applied;
        let term = member.node.raft.raft_log.term(applied).map_err(bad)?;
        let mut conf = vec![];
        put_conf(&mut conf, &member.conf_at(applied));
        Ok((applied, term, PyBytes::new(py, &conf)))
    }
    /// Everything about a group that is of interest to people and to whoever changes its members.
    fn status<'p>(&mut self, py: Python<'p>, group: u64) -> PyResult<Bound<'p, PyDict>> {
        let member = self.open_group(group)?;
        let (raft, log) = (&member.node.raft, member.log());
        let conf = raft.prs().conf().to_conf_state();
        let matched: BTreeMap<u64, (u64, bool)> =
            raft.prs().iter().map(|(id, progress)| (*id, (progress.matched, progress.recent_active))).collect();
        let dict = PyDict::new(py);
        dict.set_item("id", raft.id)?;
        dict.set_item("role", format!("{:?}", raft.state).to_lowercase())?;
        dict.set_item("leader", raft.leader_id)?;
        dict.set_item("term", raft.term)?;
        dict.set_item("vote", raft.vote)?;
        dict.set_item("commit", raft.raft_log.committed)?;
        dict.set_item("applied", raft.raft_log.applied)?;
        dict.set_item("first", log.base + 1)?;
        dict.set_item("last", raft.raft_log.last_index())?;
        dict.set_item("checkpoint", log.checkpoint)?;
        dict.set_item("size", log.size)?;
        dict.set_item("voters", sorted(conf.voters))?;
        dict.set_item("learners", sorted(conf.learners))?;
        dict.set_item("outgoing", sorted(conf.voters_outgoing))?;
        dict.set_item("is_copying", member.is_copying)?;
        dict.set_item("matched", matched)?; // of each member, and whether it was heard of lately; the leader's view
        Ok(dict)
    }
}

impl Engine {
    fn open_group(&mut self, group: u64) -> PyResult<&mut Group> {
        self.groups.get_mut(&group).ok_or_else(|| no_group(group))
    }
    fn settle(&mut self, group: u64) {
        if let Some(member) = self.groups.get_mut(&group) {
            member.settle(&mut self.dice);
        }
    }
    /// Drop entries that are durable elsewhere, as far as there are too many for peers that are behind.
    fn compact(&mut self, group: u64) {
        let total: usize = self.groups.values().map(|member| member.log().size).sum();
        let member = self.groups.get_mut(&group).expect("just seen");
        let log = member.node.mut_store();
        let start = log.size;
        while log.base < log.checkpoint && (log.size > self.keep_size || total - (start - log.size) > self.keep_total) {
            log.pop();
        }
    }
}

fn no_group(group: u64) -> PyErr {
    bad(format!("group {group} is not open"))
}

fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

fn new_log(id: u64, voters: Vec<u64>, learners: Vec<u64>) -> Log {
    let mut log = Log { id, ..Log::default() };
    if !voters.is_empty() {
        (log.base, log.base_term, log.checkpoint, log.checkpoint_term) = (FIRST_INDEX, 1, FIRST_INDEX, 1);
        (log.hard.term, log.hard.commit) = (1, FIRST_INDEX);
        (log.conf.voters, log.conf.learners) = (voters, learners);
    }
    log
}

fn sent(py: Python<'_>, out: Out) -> Sent<'_> {
    out.into_iter().map(|(node, data)| (node, PyBytes::new(py, &data))).collect()
}

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Engine>()
}
