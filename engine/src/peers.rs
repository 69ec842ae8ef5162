//! What peers say, and what their absence means.

use raft::SnapshotStatus;

use crate::codec::{put_u64s, read_message, Decoded, Reader};
use crate::group::{node_of, Forgotten};
use crate::log::{put_record, Found, FORGOT};
use crate::{Engine, CONTROL_COPY_FAILED, CONTROL_JOIN, CONTROL_PING};

impl Engine {
    pub fn peer_moved(&mut self, peer: u64, is_up: bool) {
        for (id, member) in self.groups.iter_mut() {
            if member.peer_moved(peer, is_up) {
                self.dirty.insert(*id);
            }
        }
    }
    /// One message of a peer. What is not for this member, or from somebody else, is dropped.
    pub fn take(&mut self, peer: u64, group: u64, data: &[u8]) -> Decoded<()> {
        if data[0] == CONTROL_PING {
            return Ok(());
        }
        if data[0] == CONTROL_JOIN {
            let mut from = Reader::new(&data[1..]);
            let (old, new) = (from.u64()?, from.u64()?);
            if node_of(old) == peer && node_of(new) == peer && new > old {
                self.news.joins.push((group, old, new));
            }
            return Ok(());
        }
        if data[0] == CONTROL_COPY_FAILED {
            let id = Reader::new(&data[1..]).u64()?;
            if let Some(member) = self.groups.get_mut(&group).filter(|_| node_of(id) == peer) {
                member.node.report_snapshot(id, SnapshotStatus::Failure);
                self.dirty.insert(group);
            }
            return Ok(());
        }
        let m = read_message(data)?;
        let Some(member) = self.groups.get_mut(&group) else { return Ok(()) };
        if m.to != member.node.raft.id || node_of(m.from) != peer {
            return Ok(());
        }
        match member.step(m, &mut self.dice) {
            Ok(Some((leader, index, _))) => self.news.wanted.push((group, leader, index)),
            Ok(None) => {}
            Err(Forgotten) => self.forget(group),
        }
        self.dirty.insert(group);
        Ok(())
    }
    /// This member acknowledged more than it has.
    fn forget(&mut self, group: u64) {
        if let Some(member) = self.groups.remove(&group) {
            let id = member.node.raft.id;
            self.found.insert(group, Found::forgotten(id));
            self.purge(group);
            put_record(&mut self.wal, group, FORGOT, |b| put_u64s(b, &[id]));
            self.news.forgotten.push(group);
        }
    }
}
