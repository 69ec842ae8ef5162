// Drives a server with nats.go: `compat URL PART NAME`. Ends with 0 when everything was as it should be.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
)

var name string

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("found %v, expected %v", found, expected))
	}
}

func refused(code jetstream.ErrorCode, err error) {
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != code {
		panic(fmt.Sprintf("found %v, expected error %d", err, code))
	}
}

func core(_ context.Context, nc *nats.Conn, _ jetstream.JetStream) {
	sub := must(nc.SubscribeSync(name + ".*"))
	for n := range 100 {
		check(nc.Publish(name+".x", []byte(strconv.Itoa(n))))
	}
	for n := range 100 {
		equal(string(must(sub.NextMsg(5*time.Second)).Data), strconv.Itoa(n))
	}
	must(nc.QueueSubscribe(name+"-service", "workers", func(m *nats.Msg) {
		check(m.Respond([]byte(m.Header.Get("Q") + " " + string(m.Data))))
	}))
	request := &nats.Msg{Subject: name + "-service", Data: []byte("hello"), Header: nats.Header{"Q": {"re:"}}}
	equal(string(must(nc.RequestMsg(request, 5*time.Second)).Data), "re: hello")
	_, err := nc.Request(name+"-nobody", nil, 5*time.Second)
	equal(err, nats.ErrNoResponders)
	equal(nc.MaxPayload(), int64(1048576))
	check(sub.Drain())
}

func streams(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
	stream := must(js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, AllowDirect: true}))
	equal(must(js.Publish(ctx, name+".a", []byte("1"), jetstream.WithMsgID("one"))).Sequence, uint64(1))
	equal(must(js.Publish(ctx, name+".a", []byte("1"), jetstream.WithMsgID("one"))).Duplicate, true)
	_, err := js.Publish(ctx, name+".a", nil, jetstream.WithExpectLastSequence(7))
	refused(jetstream.JSErrCodeStreamWrongLastSequence, err)
	var last jetstream.PubAckFuture
	for n := range 500 {
		last = must(js.PublishAsync(name+".async", []byte(strconv.Itoa(n))))
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(20 * time.Second):
		panic("async publishes were not acked")
	}
	equal((<-last.Ok()).Sequence, uint64(501))
	info := must(stream.Info(ctx, jetstream.WithSubjectFilter(">"), jetstream.WithDeletedDetails(true)))
	equal(info.State.Subjects, map[string]uint64{name + ".a": 1, name + ".async": 500})
	equal(string(must(stream.GetMsg(ctx, 11)).Data), "9")
	equal(string(must(stream.GetLastMsgForSubject(ctx, name+".async")).Data), "499")
	check(stream.DeleteMsg(ctx, 11))
	check(stream.SecureDeleteMsg(ctx, 12))
	_, err = stream.GetMsg(ctx, 12)
	equal(err, jetstream.ErrMsgNotFound)
	check(stream.Purge(ctx, jetstream.WithPurgeSubject(name+".async"), jetstream.WithPurgeKeep(10)))
	equal(must(stream.Info(ctx)).State.Msgs, uint64(11))
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".other"}})
	equal(errors.Is(err, jetstream.ErrStreamNameAlreadyInUse), true)
	must(js.UpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, MaxMsgs: 5}))
	equal(must(must(js.Stream(ctx, name)).Info(ctx)).State.Msgs, uint64(5))
	equal(must(js.StreamNameBySubject(ctx, name+".x")), name)
	check(js.DeleteStream(ctx, name))
	_, err = js.Stream(ctx, name)
	equal(err, jetstream.ErrStreamNotFound)
	must(js.AccountInfo(ctx))
}

func consumers(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
	stream := must(js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}))
	for n := range 10 {
		must(js.Publish(ctx, fmt.Sprintf("%s.%d", name, n%2), []byte(strconv.Itoa(n))))
	}
	consumer := must(stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "d", FilterSubject: name + ".1"}))
	var got []string
	batch := must(consumer.Fetch(5, jetstream.FetchMaxWait(5*time.Second)))
	for m := range batch.Messages() {
		got = append(got, string(m.Data()))
		check(m.DoubleAck(ctx))
	}
	equal(got, []string{"1", "3", "5", "7", "9"})
	equal(must(consumer.Info(ctx)).AckFloor.Stream, uint64(10))
	ordered := must(stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{}))
	messages := must(ordered.Messages())
	for n := range 10 {
		equal(string(must(messages.Next()).Data()), strconv.Itoa(n))
	}
	messages.Stop()
	check(js.DeleteStream(ctx, name))
}

func kv(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
	bucket := must(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, History: 5}))
	equal(must(bucket.PutString(ctx, "a", "1")), uint64(1))
	equal(must(bucket.Create(ctx, "b", []byte("2"))), uint64(2))
	_, err := bucket.Create(ctx, "b", nil)
	equal(errors.Is(err, jetstream.ErrKeyExists), true)
	equal(must(bucket.Update(ctx, "a", []byte("4"), 1)), uint64(3))
	_, err = bucket.Update(ctx, "a", nil, 1)
	refused(jetstream.JSErrCodeStreamWrongLastSequence, err)
	equal(string(must(bucket.Get(ctx, "a")).Value()), "4")
	equal(string(must(bucket.GetRevision(ctx, "a", 1)).Value()), "1")
	check(bucket.Delete(ctx, "b"))
	_, err = bucket.Get(ctx, "b")
	equal(err, jetstream.ErrKeyNotFound)
	equal(must(bucket.Create(ctx, "b", []byte("6"))), uint64(5))
	check(bucket.Purge(ctx, "a"))
	equal(must(bucket.Status(ctx)).Values(), uint64(4))
	check(js.DeleteKeyValue(ctx, name))
}

func kvwatch(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
	bucket := must(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, History: 3}))
	for n := range 5 {
		must(bucket.PutString(ctx, "k."+strconv.Itoa(n%2), strconv.Itoa(n)))
	}
	equal(len(must(bucket.History(ctx, "k.0"))), 3)
	equal(len(must(bucket.Keys(ctx))), 2)
	watcher := must(bucket.Watch(ctx, "k.>"))
	equal(string((<-watcher.Updates()).Value()), "3")
	equal(string((<-watcher.Updates()).Value()), "4")
	if entry := <-watcher.Updates(); entry != nil {
		panic("expected the end of the initial values")
	}
	must(bucket.PutString(ctx, "k.9", "new"))
	equal(string((<-watcher.Updates()).Value()), "new")
	check(watcher.Stop())
	check(js.DeleteKeyValue(ctx, name))
}

func objects(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
	store := must(js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: name}))
	data := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	equal(must(store.PutBytes(ctx, "some thing", data)).Size, uint64(len(data)))
	equal(must(store.GetBytes(ctx, "some thing")), data)
	must(store.PutString(ctx, "small", "x"))
	equal(len(must(store.List(ctx))), 2)
	check(store.Delete(ctx, "small"))
	_, err := store.GetInfo(ctx, "small")
	equal(err, jetstream.ErrObjectNotFound)
	check(js.DeleteObjectStore(ctx, name))
}

func services(_ context.Context, nc *nats.Conn, _ jetstream.JetStream) {
	service := must(micro.AddService(nc, micro.Config{Name: name + "svc", Version: "0.0.1"}))
	check(service.AddEndpoint("double", micro.HandlerFunc(func(r micro.Request) {
		check(r.Respond([]byte(strconv.Itoa(2 * must(strconv.Atoi(string(r.Data())))))))
	}), micro.WithEndpointSubject(name+"-double")))
	equal(string(must(nc.Request(name+"-double", []byte("21"), 5*time.Second)).Data), "42")
	must(nc.Request("$SRV.PING."+name+"svc", nil, 5*time.Second))
	check(service.Stop())
}

func main() {
	parts := map[string]func(context.Context, *nats.Conn, jetstream.JetStream){
		"core": core, "streams": streams, "consumers": consumers, "kv": kv, "kvwatch": kvwatch, "objects": objects,
		"services": services,
	}
	name = os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	nc := must(nats.Connect(os.Args[1]))
	defer nc.Close()
	parts[os.Args[2]](ctx, nc, must(jetstream.New(nc)))
	fmt.Println(os.Args[2], "ok")
}
