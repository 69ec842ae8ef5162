//! The flat encoding of what goes to peers and into the log. Protobuf is never parsed from either.
//!
//! Integers are little-endian. A frame is `u32 size` of what follows, `u64 group`, and a message:
//!
//!     u8 type, u8 reject, u64 each: to, from, term, log_term, index, commit, commit_term, reject_hint, request_snapshot,
//!     i64 priority, u16 size and context, u32 count and entries, u8 whether there is a snapshot: u64 index, u64 term, configuration
//!
//! An entry is `u64 index, u64 term, u8 type, u32 size, data`; a configuration is four lists of ids (voters, learners,
//! outgoing voters, next learners), each `u16 count` and ids, and `u8 auto_leave`. raft-rs has changes of the configuration
//! as protobuf inside entries: these are translated on the way out (`u8 transition`, then `u8 type, u64 id` each) and back.

use protobuf::Message as _;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, Message,
    MessageType,
};

pub type Decoded<T> = Result<T, &'static str>;

/// Reads one field after the other, never past the end.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Reader { rest: data }
    }
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    pub fn bytes(&mut self, size: usize) -> Decoded<&'a [u8]> {
        if size > self.rest.len() {
            return Err("ends in the middle of a field");
        }
        let (head, rest) = self.rest.split_at(size);
        self.rest = rest;
        Ok(head)
    }
    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.bytes(1)?[0])
    }
    pub fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(self.bytes(2)?.try_into().unwrap()))
    }
    pub fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().unwrap()))
    }
    pub fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().unwrap()))
    }
    fn ids(&mut self) -> Decoded<Vec<u64>> {
        (0..self.u16()?).map(|_| self.u64()).collect()
    }
}

pub fn put_u64s(out: &mut Vec<u8>, values: &[u64]) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

pub fn put_conf(out: &mut Vec<u8>, conf: &ConfState) {
    for ids in [&conf.voters, &conf.learners, &conf.voters_outgoing, &conf.learners_next] {
        out.extend_from_slice(&(ids.len() as u16).to_le_bytes());
        put_u64s(out, ids);
    }
    out.push(conf.auto_leave as u8);
}

pub fn read_conf(from: &mut Reader) -> Decoded<ConfState> {
    let mut conf = ConfState::default();
    conf.voters = from.ids()?;
    conf.learners = from.ids()?;
    conf.voters_outgoing = from.ids()?;
    conf.learners_next = from.ids()?;
    conf.auto_leave = from.u8()? != 0;
    Ok(conf)
}

pub fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_u64s(out, &[entry.index, entry.term]);
    out.push(entry.get_entry_type() as u8);
    if entry.get_entry_type() == EntryType::EntryNormal || entry.data.is_empty() {
        out.extend_from_slice(&(entry.data.len() as u32).to_le_bytes());
        out.extend_from_slice(&entry.data);
        return;
    }
    let change = parse_change(entry);
    out.extend_from_slice(&(1 + 9 * change.changes.len() as u32).to_le_bytes());
    out.push(change.get_transition() as u8);
    for single in change.changes.iter() {
        out.push(single.get_change_type() as u8);
        put_u64s(out, &[single.node_id]);
    }
}

/// The change in an entry that this process encoded as protobuf itself; an empty one leaves a joint configuration.
pub fn parse_change(entry: &Entry) -> ConfChangeV2 {
    let mut change = ConfChangeV2::default();
    change.merge_from_bytes(&entry.data).expect("our own encoding");
    change
}

pub fn read_entry(from: &mut Reader) -> Decoded<Entry> {
    let mut entry = Entry::default();
    entry.index = from.u64()?;
    entry.term = from.u64()?;
    let kind = from.u8()?;
    let size = from.u32()? as usize;
    let data = from.bytes(size)?;
    match kind {
        0 => entry.data = data.to_vec().into(),
        2 => {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
            if !data.is_empty() {
                entry.data = read_change(data)?.write_to_bytes().expect("in memory").into();
            }
        }
        _ => return Err("an entry of an unknown type"),
    }
    Ok(entry)
}

fn read_change(data: &[u8]) -> Decoded<ConfChangeV2> {
    let mut from = Reader::new(data);
    let mut change = ConfChangeV2::default();
    change.set_transition(match from.u8()? {
        0 => ConfChangeTransition::Auto,
        1 => ConfChangeTransition::Implicit,
        2 => ConfChangeTransition::Explicit,
        _ => return Err("a change of an unknown transition"),
    });
    let mut singles = vec![];
    while !from.is_empty() {
        let kind = match from.u8()? {
            0 => ConfChangeType::AddNode,
            1 => ConfChangeType::RemoveNode,
            2 => ConfChangeType::AddLearnerNode,
            _ => return Err("a change of an unknown type"),
        };
        singles.push(single_change(kind, from.u64()?));
    }
    change.set_changes(singles.into());
    Ok(change)
}

pub fn single_change(kind: ConfChangeType, id: u64) -> ConfChangeSingle {
    let mut single = ConfChangeSingle::default();
    single.set_change_type(kind);
    single.node_id = id;
    single
}

/// Put a frame around what `body` writes.
pub fn put_frame(out: &mut Vec<u8>, group: u64, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put_u64s(out, &[group]);
    body(out);
    let size = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&size.to_le_bytes());
}

pub fn put_message(out: &mut Vec<u8>, m: &Message) {
    out.push(m.get_msg_type() as u8);
    out.push(m.reject as u8);
    put_u64s(out, &[m.to, m.from, m.term, m.log_term, m.index, m.commit, m.commit_term, m.reject_hint]);
    put_u64s(out, &[m.request_snapshot, m.priority as u64]);
    out.extend_from_slice(&(m.context.len() as u16).to_le_bytes());
    out.extend_from_slice(&m.context);
    out.extend_from_slice(&(m.entries.len() as u32).to_le_bytes());
    for entry in m.entries.iter() {
        put_entry(out, entry);
    }
    out.push(m.has_snapshot() as u8);
    if m.has_snapshot() {
        let meta = m.get_snapshot().get_metadata();
        put_u64s(out, &[meta.index, meta.term]);
        put_conf(out, meta.get_conf_state());
    }
}

/// A message from a peer. What only a member may tell itself is refused.
pub fn read_message(data: &[u8]) -> Decoded<Message> {
    let mut from = Reader::new(data);
    let mut m = Message::default();
    m.set_msg_type(match from.u8()? {
        3 => MessageType::MsgAppend,
        4 => MessageType::MsgAppendResponse,
        5 => MessageType::MsgRequestVote,
        6 => MessageType::MsgRequestVoteResponse,
        7 => MessageType::MsgSnapshot,
        8 => MessageType::MsgHeartbeat,
        9 => MessageType::MsgHeartbeatResponse,
        13 => MessageType::MsgTransferLeader,
        14 => MessageType::MsgTimeoutNow,
        15 => MessageType::MsgReadIndex,
        16 => MessageType::MsgReadIndexResp,
        17 => MessageType::MsgRequestPreVote,
        18 => MessageType::MsgRequestPreVoteResponse,
        _ => return Err("a message of a type that is not for peers"),
    });
    m.reject = from.u8()? != 0;
    m.to = from.u64()?;
    m.from = from.u64()?;
    m.term = from.u64()?;
    m.log_term = from.u64()?;
    m.index = from.u64()?;
    m.commit = from.u64()?;
    m.commit_term = from.u64()?;
    m.reject_hint = from.u64()?;
    m.request_snapshot = from.u64()?;
    m.priority = from.u64()? as i64;
    let size = from.u16()? as usize;
    m.context = from.bytes(size)?.to_vec().into();
    let count = from.u32()?;
    let mut entries = Vec::with_capacity(count.min(1024) as usize);
    for _ in 0..count {
        entries.push(read_entry(&mut from)?);
    }
    let is_append = m.get_msg_type() == MessageType::MsgAppend;
    if is_append && (1..).zip(&entries).any(|(n, e)| m.index.checked_add(n) != Some(e.index) || e.term > m.term) {
        return Err("entries that do not follow each other");
    }
    m.set_entries(entries.into());
    if from.u8()? != 0 {
        let meta = m.mut_snapshot().mut_metadata();
        meta.index = from.u64()?;
        meta.term = from.u64()?;
        meta.set_conf_state(read_conf(&mut from)?);
    }
    if !from.is_empty() {
        return Err("bytes behind the last field");
    }
    Ok(m)
}
