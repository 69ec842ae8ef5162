//! One member of one group: a RawNode, and what raft-rs leaves to its user.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use raft::eraftpb::{ConfState, Message, MessageType};
use raft::{Config, Progress, ProgressState, RawNode, SnapshotStatus, StateRole};

use crate::log::Log;

const MESSAGE_SIZE_MAX: u64 = 1 << 20;
const UNCOMMITTED_SIZE_MAX: u64 = 64 << 20;
const COMMITTED_SIZE_MAX: u64 = 16 << 20; // handed out by one turn
const RETRY_TICKS: u64 = 3; // between two attempts to replace a leader that is down; and as many again, by lot

const SEND_AGAIN_TICKS: u64 = 20; // to a member that has to copy

pub fn node_of(id: u64) -> u64 {
    id >> 16
}

/// What goes to each node.
pub type Out = BTreeMap<u64, Vec<u8>>;

/// xorshift64*: the only source of chance here.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

pub struct Group {
    pub node: RawNode<Log>,
    pub role: StateRole,
    pub leader: u64,
    pub skip: u64, // entries up to here are known to the application already
    pub is_copying: bool,
    pub is_volatile: bool,
    pub confs: VecDeque<(u64, ConfState)>, // the configurations behind the checkpoint, by the index that made them
    pub note: Option<(u64, Vec<u8>)>,      // of a copy that is being installed
    written_commit: u64,
    timeout: usize,
    drawn: (u64, StateRole),
    ticks: u64,
    retry: Option<u64>, // ticks until the next attempt to replace a leader that is down
}

/// What must not be handed to raft-rs, which would panic: this member has less than it once said it had.
pub struct Forgotten;

impl Group {
    pub fn new(log: Log, skip: u64, election: usize, heartbeat: usize, is_volatile: bool) -> raft::Result<Self> {
        let config = Config {
            id: log.id,
            election_tick: election,
            heartbeat_tick: heartbeat,
            applied: log.base,
            max_size_per_msg: MESSAGE_SIZE_MAX,
            max_inflight_msgs: 256,
            check_quorum: true,
            pre_vote: true,
            // Not `batch_append`: it adds entries to an empty message for the same member even where they do not follow it.
            max_uncommitted_size: UNCOMMITTED_SIZE_MAX,
            max_committed_size_per_ready: COMMITTED_SIZE_MAX,
            ..Default::default()
        };
        let written_commit = log.hard.commit;
        let node = RawNode::new(&config, log, &slog::Logger::root(slog::Discard, slog::o!()))?;
        Ok(Group {
            node,
            role: StateRole::Follower,
            leader: 0,
            skip,
            is_copying: false,
            is_volatile,
            confs: VecDeque::new(),
            note: None,
            written_commit,
            timeout: election,
            drawn: (u64::MAX, StateRole::Follower),
            ticks: 0,
            retry: None,
        })
    }
    pub fn log(&self) -> &Log {
        self.node.store()
    }
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// raft-rs draws election timeouts from the thread's generator: put one of ours in place of each, so that a seed replays.
    pub fn settle(&mut self, dice: &mut Dice) {
        let raft = &mut self.node.raft;
        if self.drawn != (raft.term, raft.state) {
            self.drawn = (raft.term, raft.state);
            let least = raft.election_timeout();
            self.timeout = least + dice.below(least as u64) as usize;
        }
        raft.set_randomized_election_timeout(self.timeout);
    }

    /// Until a copy is installed durably, raft-rs would look in vain for what is not applied yet.
    fn is_installing(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.applied + 1 < log.first_index()
    }

    pub fn tick(&mut self, dice: &mut Dice) -> bool {
        if self.is_installing() {
            return false;
        }
        let mut is_dirty = self.node.tick();
        self.settle(dice);
        if let Some(ticks) = self.retry {
            if self.node.raft.leader_id != 0 {
                self.retry = None;
            } else if ticks > 1 {
                self.retry = Some(ticks - 1);
            } else {
                self.replace_leader(dice);
                is_dirty = true;
            }
        }
        self.ticks += 1;
        if self.ticks % SEND_AGAIN_TICKS == 0 {
            self.send_again();
        }
        is_dirty | self.leave_joint()
    }
    /// A member that was sent for a copy may not have heard of it; one that is at it ignores this.
    fn send_again(&mut self) {
        if self.is_leader() {
            let is_sent =
                |(id, progress): (&u64, &Progress)| (progress.state == ProgressState::Snapshot).then_some(*id);
            let ids: Vec<u64> = self.node.raft.prs().iter().filter_map(is_sent).collect();
            for id in ids {
                self.node.report_snapshot(id, SnapshotStatus::Failure);
            }
        }
    }
    /// raft-rs leaves a joint configuration by itself, but a new leader may miss the moment.
    fn leave_joint(&mut self) -> bool {
        let raft = &self.node.raft;
        let is_due = raft.state == StateRole::Leader && raft.prs().conf().to_conf_state().auto_leave;
        if !is_due || raft.has_pending_conf() || raft.pending_conf_index > raft.raft_log.applied {
            return false;
        }
        self.node.propose_conf_change(vec![], raft::eraftpb::ConfChangeV2::default()).is_ok()
    }

    /// Try to lead. raft-rs does not ask whether this is a voter, and panics when it is elected.
    pub fn campaign(&mut self, dice: &mut Dice) {
        if self.node.raft.promotable() && !self.is_installing() {
            let _ = self.node.campaign();
            self.settle(dice);
        }
    }

    fn replace_leader(&mut self, dice: &mut Dice) {
        self.retry = Some(RETRY_TICKS + dice.below(RETRY_TICKS));
        self.campaign(dice);
    }

    /// The leader's node is down for sure: its lease ends now, and the members that are left try to follow it one by one.
    pub fn leader_is_down(&mut self, down: &BTreeSet<u64>, dice: &mut Dice) -> bool {
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader || (raft.leader_id != 0 && !down.contains(&node_of(raft.leader_id))) {
            return false;
        }
        raft.election_elapsed = raft.election_timeout();
        raft.leader_id = 0;
        let own = raft.id;
        let conf = raft.prs().conf().to_conf_state();
        let voters: BTreeSet<u64> = conf.voters.into_iter().chain(conf.voters_outgoing).collect();
        if !voters.contains(&own) {
            return true;
        }
        match voters.iter().filter(|id| !down.contains(&node_of(**id))).position(|id| *id == own) {
            Some(0) => self.replace_leader(dice),
            _ => self.retry = Some(1 + dice.below(3)),
        }
        true
    }

    /// A leader hears of a connection that was lost, or is there again.
    pub fn peer_moved(&mut self, peer: u64, is_up: bool) -> bool {
        if !self.is_leader() {
            return false;
        }
        let ids: Vec<u64> = self.node.raft.prs().iter().map(|(id, _)| *id).filter(|id| node_of(*id) == peer).collect();
        for id in &ids {
            self.node.report_snapshot(*id, SnapshotStatus::Failure); // it has to be asked for once more
            self.node.report_unreachable(*id);
        }
        if is_up && !ids.is_empty() {
            self.node.ping();
        }
        !ids.is_empty()
    }

    /// Hand over a message from a peer; a wish for a copy comes back.
    pub fn step(&mut self, mut m: Message, dice: &mut Dice) -> Result<Option<(u64, u64, u64)>, Forgotten> {
        let raft = &self.node.raft;
        let (last, committed) = (raft.raft_log.last_index(), raft.raft_log.committed);
        let mut wanted = None;
        match m.get_msg_type() {
            MessageType::MsgHeartbeat if m.term >= raft.term => {
                if m.commit > last {
                    return Err(Forgotten);
                }
                if self.is_copying {
                    m.commit = m.commit.min(committed);
                }
            }
            MessageType::MsgAppend => {
                if self.is_copying {
                    return Ok(None);
                }
                let is_known = |e: &&raft::eraftpb::Entry| e.index <= committed && e.index > self.log().base;
                let differs = |e: &raft::eraftpb::Entry| raft.raft_log.term(e.index).is_ok_and(|term| term != e.term);
                if m.term >= raft.term && m.entries.iter().filter(is_known).any(differs) {
                    return Err(Forgotten);
                }
            }
            MessageType::MsgAppendResponse if !m.reject && m.index > last => return Ok(None),
            MessageType::MsgTimeoutNow if self.is_installing() => return Ok(None),
            MessageType::MsgSnapshot => {
                let (index, term) = (m.get_snapshot().get_metadata().index, m.term);
                if term < raft.term || index <= committed {
                    // Answer as raft does: what is committed here is enough, or the leader is not one any more.
                } else {
                    if !self.is_copying {
                        self.is_copying = true;
                        wanted = Some((m.from, index, m.get_snapshot().get_metadata().term));
                    }
                    let mut beat = Message::default(); // it says who leads; the rest comes with the copy
                    beat.set_msg_type(MessageType::MsgHeartbeat);
                    (beat.to, beat.from, beat.term) = (m.to, m.from, m.term);
                    m = beat;
                }
            }
            _ => {}
        }
        let _ = self.node.step(m); // what raft-rs refuses is as if it had been lost
        self.settle(dice);
        Ok(wanted)
    }

    /// Take over the state of another member, which is durable here.
    pub fn install(&mut self, index: u64, term: u64, conf: ConfState, note: Vec<u8>, dice: &mut Dice) -> bool {
        self.is_copying = false;
        let raft = &mut self.node.raft;
        if raft.state != StateRole::Follower || index <= raft.raft_log.committed {
            return false;
        }
        let mut m = Message::default();
        m.set_msg_type(MessageType::MsgSnapshot);
        (m.to, m.from, m.term) = (raft.id, raft.leader_id, raft.term);
        let meta = m.mut_snapshot().mut_metadata();
        (meta.index, meta.term) = (index, term);
        meta.set_conf_state(conf);
        let _ = self.node.step(m);
        self.settle(dice);
        let is_taken = self.node.raft.raft_log.committed >= index;
        if is_taken {
            self.skip = self.skip.max(index);
            self.note = Some((index, note));
        }
        is_taken
    }

    /// Whether the hard state has to be written: for its own sake, or because there is something to write anyway.
    pub fn hard_changed(&mut self, is_writing: bool) -> bool {
        let log = self.node.store();
        let is_due = is_writing && log.hard.commit != self.written_commit;
        if is_due {
            self.written_commit = log.hard.commit;
        }
        is_due
    }

    pub fn conf_at(&self, index: u64) -> ConfState {
        let later = self.confs.iter().rev().find(|(at, _)| *at <= index);
        later.map_or_else(|| self.log().conf.clone(), |(_, conf)| conf.clone())
    }

    /// Everything up to an index is durable elsewhere.
    pub fn checkpoint(&mut self, index: u64, note: Vec<u8>) {
        let conf = self.conf_at(index);
        while self.confs.front().is_some_and(|(at, _)| *at <= index) {
            self.confs.pop_front();
        }
        let log = self.node.mut_store();
        log.checkpoint_term = log.term_at(index).expect("it was applied from here");
        (log.checkpoint, log.conf, log.note) = (index, conf, note);
    }
}
