// franz-go's adapter; tests/clients/client.py has the contract.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"basalt/clients/contract"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func client(address string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(address))...)
	contract.Check(err)
	return made
}

func version([]string) {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			fmt.Println(module.Version)
		}
	}
}

func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), contract.Patience)
}

func create(words []string) {
	context, cancel := bounded()
	defer cancel()
	admin := kadm.NewClient(client(words[0]))
	defer admin.Close()
	_, err := admin.CreateTopic(context, int32(contract.Number(words[2])), 1, nil, words[1])
	contract.Check(err)
}

func produce(words []string) {
	options := []kgo.Opt{kgo.ProducerBatchCompression(codecs[words[2]])}
	if words[3] == "plain" {
		options = append(options, kgo.DisableIdempotentWrite(),
			kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	producer := client(words[0], options...)
	defer producer.Close()
	var failed atomic.Value
	contract.ReadSent(func(sent contract.Sent) {
		record := &kgo.Record{Topic: words[1], Key: []byte(sent.Key), Value: []byte(sent.Value)}
		for _, header := range sent.Headers {
			record.Headers = append(record.Headers,
				kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
		}
		producer.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(err)
			}
		})
	})
	context, cancel := bounded()
	defer cancel()
	contract.Check(producer.Flush(context))
	if err := failed.Load(); err != nil {
		contract.Check(err.(error))
	}
}

func show(record *kgo.Record) {
	seen := contract.Seen{Partition: record.Partition, Offset: record.Offset,
		Timestamp: record.Timestamp.UnixMilli(), Key: string(record.Key),
		Value: string(record.Value)}
	for _, header := range record.Headers {
		seen.Headers = append(seen.Headers, contract.Header{header.Key, string(header.Value)})
	}
	contract.Show(seen)
}

func consume(words []string) {
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	consumer := client(words[0], kgo.ConsumerGroup(words[1]), kgo.ConsumeTopics(words[2]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll())
	for stopping.Err() == nil {
		fetches := consumer.PollFetches(stopping)
		for _, failure := range fetches.Errors() {
			fmt.Fprintln(os.Stderr, failure.Err)
		}
		fetches.EachRecord(show)
		contract.Flush()
		if !fetches.Empty() {
			// An error is a rebalance or no broker: the next one commits.
			if err := consumer.CommitUncommittedOffsets(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		consumer.AllowRebalance()
	}
	consumer.Close()
}

func fetch(words []string) {
	left := contract.Ends(words[2])
	from := map[int32]kgo.Offset{}
	for partition := range left {
		from[partition] = kgo.NewOffset().AtStart()
	}
	consumer := client(words[0], kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		words[1]: from}))
	defer consumer.Close()
	context, cancel := bounded()
	defer cancel()
	for len(left) > 0 {
		fetches := consumer.PollFetches(context)
		contract.Check(context.Err())
		contract.Check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			show(record)
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
		})
	}
}

func committed(words []string) {
	context, cancel := bounded()
	defer cancel()
	admin := kadm.NewClient(client(words[0]))
	defer admin.Close()
	answers, err := admin.FetchOffsets(context, words[1])
	contract.Check(err)
	contract.Check(answers.Error())
	found := map[int32]int64{}
	answers.Each(func(answer kadm.OffsetResponse) {
		if answer.Topic == words[2] {
			found[answer.Partition] = answer.At
		}
	})
	contract.Print(found)
}

func offsets(words []string) {
	context, cancel := bounded()
	defer cancel()
	admin := kadm.NewClient(client(words[0]))
	defer admin.Close()
	flat := func(listed kadm.ListedOffsets, err error) map[int32]int64 {
		contract.Check(err)
		contract.Check(listed.Error())
		found := map[int32]int64{}
		listed.Each(func(offset kadm.ListedOffset) { found[offset.Partition] = offset.Offset })
		return found
	}
	contract.Print([]any{
		flat(admin.ListStartOffsets(context, words[1])),
		flat(admin.ListEndOffsets(context, words[1])),
		flat(admin.ListOffsetsAfterMilli(context, contract.Number(words[2]), words[1])),
	})
}

func main() {
	contract.Run(map[string]func([]string){
		"version": version, "create": create, "produce": produce, "consume": consume,
		"fetch": fetch, "committed": committed, "offsets": offsets,
	})
}
