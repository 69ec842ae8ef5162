//! Turns: what groups write, say and apply, all of them in one go.

use raft::eraftpb::{ConfState, Entry, EntryType, HardState};
use raft::StateRole;

use crate::codec::{parse_change, put_frame, put_message};
use crate::group::{node_of, Group, Out};
use crate::log::put_entries;
use crate::{sorted, Engine, Turn};

impl Engine {
    /// Take what each busy group has to write and to say: bytes for the log, and messages that need not wait for it.
    pub fn begin_turn(&mut self) -> (Vec<u8>, Out) {
        self.turn += 1;
        let mut wal = std::mem::take(&mut self.wal);
        let (mut now, mut later) = (std::mem::take(&mut self.out), Out::new());
        let mut readies = vec![];
        for id in std::mem::take(&mut self.dirty) {
            let Some(member) = self.groups.get_mut(&id) else { continue };
            if !member.node.has_ready() {
                continue;
            }
            let mut ready = member.node.ready();
            for m in ready.take_messages() {
                put_frame(now.entry(node_of(m.to)).or_default(), id, |b| put_message(b, &m));
            }
            for m in ready.take_persisted_messages() {
                put_frame(later.entry(node_of(m.to)).or_default(), id, |b| put_message(b, &m));
            }
            let mut written = vec![];
            let snapshot = take_snapshot(member, &ready, id, &mut written);
            if snapshot > 0 {
                let conf = member.log().conf.clone();
                self.news.confs.push((id, snapshot, sorted(conf.voters), sorted(conf.learners)));
            }
            put_entries(&mut written, id, ready.entries());
            if let Some(last) = ready.entries().last().filter(|_| !member.is_volatile) {
                let highest = self.written.entry(id).or_default();
                *highest = last.index.max(*highest);
            }
            for entry in ready.entries() {
                member.node.mut_store().append(entry);
            }
            let mut hard_is_due = false;
            if let Some(hard) = ready.hs() {
                let old: HardState = std::mem::replace(&mut member.node.mut_store().hard, hard.clone());
                hard_is_due = (old.term, old.vote) != (hard.term, hard.vote);
            }
            if member.hard_changed(hard_is_due || !written.is_empty()) || hard_is_due {
                member.log().put_hard(&mut written, id);
            }
            if !member.is_volatile {
                wal.append(&mut written);
            }
            if let Some(soft) = ready.ss() {
                if (soft.raft_state, soft.leader_id) != (member.role, member.leader) {
                    (member.role, member.leader) = (soft.raft_state, soft.leader_id);
                    let is_leader = member.role == StateRole::Leader;
                    self.news.roles.push((id, member.node.raft.term, is_leader, member.leader));
                }
            }
            for read in ready.take_read_states() {
                let token = u64::from_le_bytes(read.request_ctx[..].try_into().unwrap_or_default());
                self.news.reads.push((id, read.index, token));
            }
            self.news.committed.extend(ready.take_committed_entries().into_iter().map(|entry| (id, entry)));
            readies.push((id, ready.number(), snapshot));
            member.node.advance_append_async(ready);
        }
        for nobody in [0, self.node] {
            now.remove(&nobody); // a leader that is not known, an earlier incarnation of this very node
            later.remove(&nobody);
        }
        if !readies.is_empty() || !later.is_empty() {
            self.turns.push_back(Turn { number: self.turn, readies, later });
        }
        (wal, now)
    }

    /// Turns up to this one are durable: what waited for that.
    pub fn end_turns(&mut self, turn: u64) -> Vec<Out> {
        let mut messages = vec![];
        while self.turns.front().is_some_and(|first| first.number <= turn) {
            let done = self.turns.pop_front().expect("just seen");
            messages.push(done.later);
            for (id, number, snapshot) in done.readies {
                let Some(member) = self.groups.get_mut(&id) else { continue };
                member.node.on_persist_ready(number);
                if snapshot > member.node.raft.raft_log.applied {
                    member.node.advance_apply_to(snapshot);
                }
                if member.node.has_ready() {
                    self.dirty.insert(id);
                }
            }
        }
        messages
    }

    /// A committed entry goes to the application; the configuration, if it changed that.
    pub fn apply(&mut self, id: u64, entry: &Entry) -> raft::Result<Option<ConfState>> {
        let Some(member) = self.groups.get_mut(&id) else { return Ok(None) };
        let mut changed = None;
        if entry.get_entry_type() == EntryType::EntryConfChangeV2 {
            let conf = member.node.apply_conf_change(&parse_change(entry))?;
            member.confs.push_back((entry.index, conf.clone()));
            let raft = &mut member.node.raft;
            let is_member = conf.voters.iter().chain(&conf.voters_outgoing).any(|voter| *voter == raft.id);
            if !is_member && raft.state != StateRole::Follower {
                let term = raft.term;
                raft.become_follower(term, 0); // raft-rs would go on leading, or panic when it is elected
                member.settle(&mut self.dice);
            }
            changed = Some(conf);
        }
        member.node.advance_apply_to(entry.index);
        if let Some((index, note)) = member.note.take_if(|(index, _)| *index <= entry.index) {
            member.checkpoint(index, note); // the log had all that was copied
            if !member.is_volatile {
                member.log().put_checkpoint(&mut self.wal, id);
            }
        }
        if member.node.has_ready() {
            self.dirty.insert(id);
        }
        Ok(changed)
    }

    /// A member is closed: what was under way for it must not reach the next one of its group.
    pub fn purge(&mut self, group: u64) {
        for turn in self.turns.iter_mut() {
            turn.readies.retain(|(id, _, _)| *id != group);
        }
        let news = &mut self.news;
        news.committed.retain(|(id, _)| *id != group);
        news.roles.retain(|(id, ..)| *id != group);
        news.reads.retain(|(id, ..)| *id != group);
        news.wanted.retain(|(id, ..)| *id != group);
        news.confs.retain(|(id, ..)| *id != group);
    }
}

/// Begin the log anew behind a copy that was installed; its index, or 0.
fn take_snapshot(member: &mut Group, ready: &raft::Ready, id: u64, written: &mut Vec<u8>) -> u64 {
    let meta = ready.snapshot().get_metadata();
    if meta.index == 0 {
        return 0;
    }
    let note = member.note.take().filter(|(index, _)| *index == meta.index).map_or_else(Vec::new, |(_, note)| note);
    member.confs.clear();
    let log = member.node.mut_store();
    log.restart(meta.index, meta.term);
    (log.checkpoint, log.checkpoint_term) = (meta.index, meta.term);
    (log.conf, log.note) = (meta.get_conf_state().clone(), note);
    log.put_checkpoint(written, id);
    meta.index
}
