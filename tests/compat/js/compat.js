// Drives a server with nats.js: `node compat.js URL PART NAME`. Ends with 0 when everything was as it should be.

import assert from "node:assert/strict";
import { AckPolicy, DiscardPolicy, jetstream, jetstreamManager, JetStreamApiError } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { Objm } from "@nats-io/obj";
import { Svcm } from "@nats-io/services";
import { wsconnect } from "@nats-io/nats-core";
import { connect, errors, headers, nanos } from "@nats-io/transport-node";

const [url, part, name] = process.argv.slice(2);
const text = (data) => new TextDecoder().decode(data);

async function refused(code, promise) {
  await assert.rejects(promise, (error) => error instanceof JetStreamApiError && error.code === code);
}

const parts = {
  async core(nc) {
    const sub = nc.subscribe(`${name}.*`, { max: 3 });
    const got = (async () => {
      const all = [];
      for await (const m of sub) all.push(m.string());
      return all;
    })();
    for (const payload of ["a", "b", "c", "d"]) nc.publish(`${name}.x`, payload);
    assert.deepEqual(await got, ["a", "b", "c"]);

    nc.subscribe(`${name}.service`, {
      queue: "workers",
      callback: (_, m) => m.respond(`${m.headers.get("q")} ${m.string()}`),
    });
    const h = headers();
    h.set("q", "re:");
    assert.equal((await nc.request(`${name}.service`, "hello", { headers: h, timeout: 5000 })).string(), "re: hello");
    await assert.rejects(nc.request(`${name}.nobody`, ""), errors.RequestError);
    assert.equal((await nc.context()).data.account, "$G");
    assert.ok((await nc.rtt()) >= 0);
  },

  async streams(nc) {
    const js = jetstream(nc), jsm = await jetstreamManager(nc);
    const config = { name, subjects: [`${name}.>`], allow_direct: true, duplicate_window: nanos(60_000) };
    assert.equal((await jsm.streams.add(config)).config.name, name);
    assert.equal((await js.publish(`${name}.a`, "1", { msgID: "one" })).seq, 1);
    assert.equal((await js.publish(`${name}.a`, "1", { msgID: "one" })).duplicate, true);
    assert.equal((await js.publish(`${name}.b`, "2", { expect: { lastSequence: 1, streamName: name } })).seq, 2);
    await refused(10071, js.publish(`${name}.b`, "3", { expect: { lastSequence: 1 } }));
    await refused(10071, js.publish(`${name}.b`, "3", { expect: { lastSubjectSequence: 1 } }));
    await refused(10060, js.publish(`${name}.b`, "3", { expect: { streamName: "other" } }));
    assert.equal((await jsm.streams.getMessage(name, { seq: 2 })).string(), "2");
    assert.equal((await jsm.streams.getMessage(name, { last_by_subj: `${name}.a` })).string(), "1");
    assert.equal(await jsm.streams.getMessage(name, { seq: 9 }), null);
    assert.equal((await jsm.direct.getMessage(name, { seq: 1 })).string(), "1");
    assert.equal((await jsm.direct.getMessage(name, { next_by_subj: `${name}.b` })).seq, 2);
    const batch = [];
    for await (const m of await jsm.direct.getBatch(name, { seq: 1, batch: 10 })) batch.push(m.seq);
    assert.deepEqual(batch, [1, 2]);
    const last = [];
    for await (const m of await jsm.direct.getLastMessagesFor(name, { multi_last: [`${name}.>`] })) last.push(m.string());
    assert.deepEqual(last, ["1", "2"]);
    const info = await jsm.streams.info(name, { subjects_filter: ">" });
    assert.deepEqual(info.state.subjects, { [`${name}.a`]: 1, [`${name}.b`]: 1 });
    assert.equal(await jsm.streams.find(`${name}.a`), name);
    assert.ok(await jsm.streams.deleteMessage(name, 1));
    assert.equal((await jsm.streams.purge(name)).purged, 1);
    const updated = await jsm.streams.update(name, { max_msgs: 2, discard: DiscardPolicy.New });
    assert.equal(updated.config.max_msgs, 2);
    await js.publish(`${name}.c`);
    await js.publish(`${name}.c`);
    await refused(10077, js.publish(`${name}.c`));
    assert.ok((await jsm.streams.list().next()).some((stream) => stream.config.name === name));
    await refused(10058, jsm.streams.add({ name, subjects: [`${name}.other`] }));
    assert.ok(await jsm.streams.delete(name));
    await refused(10059, jsm.streams.info(name));
    assert.ok((await jsm.getAccountInfo()).api.total > 0);
  },

  async consumers(nc) {
    const js = jetstream(nc), jsm = await jetstreamManager(nc);
    await jsm.streams.add({ name, subjects: [`${name}.>`] });
    for (let n = 0; n < 10; n++) await js.publish(`${name}.${n % 2}`, `${n}`);
    await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit, filter_subject: `${name}.1` });
    const consumer = await js.consumers.get(name, "d");
    const got = [];
    for await (const m of await consumer.fetch({ max_messages: 5, expires: 2000 })) {
      got.push(m.string());
      m.ack();
    }
    assert.deepEqual(got, ["1", "3", "5", "7", "9"]);
    const ordered = await js.consumers.get(name);
    const all = [];
    for await (const m of await ordered.consume()) {
      all.push(m.seq);
      if (m.info.pending === 0) break;
    }
    assert.deepEqual(all, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    await jsm.streams.delete(name);
  },

  async kv(nc) {
    const kvm = new Kvm(nc);
    const kv = await kvm.create(name, { history: 5 });
    assert.equal(await kv.put("a", "1"), 1);
    assert.equal(await kv.create("b", "2"), 2);
    await assert.rejects(kv.create("b", "3"));
    assert.equal(await kv.update("a", "4", 1), 3);
    await assert.rejects(kv.update("a", "5", 1));
    assert.equal((await kv.get("a")).string(), "4");
    assert.equal((await kv.get("a", { revision: 1 })).string(), "1");
    assert.equal(await kv.get("none"), null);
    await kv.delete("b");
    assert.equal((await kv.get("b")).operation, "DEL");
    assert.equal(await kv.create("b", "6"), 5);
    await kv.purge("a");
    assert.equal((await kv.status()).values, 4);
    assert.ok((await kvm.list().next()).some((bucket) => bucket.bucket === name));
    await kv.destroy();
  },

  async kvwatch(nc) {
    const kv = await new Kvm(nc).create(name, { history: 3 });
    for (let n = 0; n < 5; n++) await kv.put(`k.${n % 2}`, `${n}`);
    const history = [], keys = [], seen = [];
    for await (const entry of await kv.history({ key: "k.0" })) history.push(entry.string());
    assert.deepEqual(history, ["0", "2", "4"]);
    for await (const key of await kv.keys()) keys.push(key);
    assert.deepEqual(keys.sort(), ["k.0", "k.1"]);
    const watch = await kv.watch({ key: "k.>" });
    setTimeout(() => kv.put("k.9", "new"), 100);
    for await (const entry of watch) {
      seen.push(`${entry.key}=${entry.string()}`);
      if (entry.key === "k.9") break;
    }
    assert.deepEqual(seen, ["k.1=3", "k.0=4", "k.9=new"]);
    await kv.destroy();
  },

  async objects(nc) {
    const store = await new Objm(nc).create(name, { description: "things" });
    const data = new Uint8Array(300_000).map((_, n) => n % 251);
    const info = await store.putBlob({ name: "some thing", options: { max_chunk_size: 32 * 1024 } }, data);
    assert.equal(info.chunks, 10);
    assert.deepEqual(await store.getBlob("some thing"), data);
    assert.equal(text(await (await store.putBlob({ name: "small" }, new TextEncoder().encode("x")), store.getBlob("small"))), "x");
    assert.deepEqual((await store.list()).map((one) => one.name).sort(), ["small", "some thing"]);
    assert.ok((await store.delete("small")).success);
    assert.equal(await store.get("small"), null);
    await store.seal();
    await assert.rejects(store.putBlob({ name: "late" }, data));
    await store.destroy();
  },

  async services(nc) {
    const service = await new Svcm(nc).add({ name: `${name}svc`, version: "0.0.1", queue: "q" });
    service.addEndpoint("double", { subject: `${name}.double`, handler: (_, m) => m.respond(`${2 * Number(m.string())}`) });
    assert.equal((await nc.request(`${name}.double`, "21")).string(), "42");
    const found = [];
    for await (const one of await new Svcm(nc).client().info(`${name}svc`)) found.push(one.name);
    assert.deepEqual(found, [`${name}svc`]);
    await service.stop();
  },
};

const dial = url.startsWith("ws") ? wsconnect : connect;
const nc = await dial({ servers: url, name: "compat" });
try {
  await parts[part](nc);
} finally {
  await nc.close();
}
console.log(`${part} ok`);
