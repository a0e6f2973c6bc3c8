// Sarama's adapter; tests/clients/client.py has the contract.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sort"
	"sync"
	"syscall"
	"time"

	"basalt/clients/contract"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
	"zstd": sarama.CompressionZSTD,
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 240
	config.Metadata.Retry.Backoff = 250 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 30 * time.Second
	config.Consumer.Return.Errors = true
	return config
}

func version([]string) {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/IBM/sarama" {
			fmt.Println(module.Version)
		}
	}
}

func connect(address string) sarama.Client {
	client, err := sarama.NewClient([]string{address}, settings())
	contract.Check(err)
	return client
}

func administer(address string) sarama.ClusterAdmin {
	admin, err := sarama.NewClusterAdmin([]string{address}, settings())
	contract.Check(err)
	return admin
}

func create(words []string) {
	admin := administer(words[0])
	contract.Check(admin.CreateTopic(words[1], &sarama.TopicDetail{
		NumPartitions: int32(contract.Number(words[2])), ReplicationFactor: 1}, false))
	contract.Check(admin.Close())
}

func produce(words []string) {
	config := settings()
	config.Producer.Compression = codecs[words[2]]
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = words[3] == "idempotent"
	config.Producer.Retry.Max = 600
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer([]string{words[0]}, config)
	contract.Check(err)
	// Closing gives up what is being retried, so each message is waited for first.
	var open sync.WaitGroup
	go func() {
		for range producer.Successes() {
			open.Done()
		}
	}()
	go func() {
		for failure := range producer.Errors() {
			contract.Check(failure)
		}
	}()
	contract.ReadSent(func(sent contract.Sent) {
		message := &sarama.ProducerMessage{Topic: words[1], Key: sarama.StringEncoder(sent.Key),
			Value: sarama.StringEncoder(sent.Value)}
		for _, header := range sent.Headers {
			message.Headers = append(message.Headers,
				sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])})
		}
		open.Add(1)
		producer.Input() <- message
	})
	open.Wait()
	contract.Check(producer.Close())
}

func show(message *sarama.ConsumerMessage) {
	seen := contract.Seen{Partition: message.Partition, Offset: message.Offset,
		Timestamp: message.Timestamp.UnixMilli(), Key: string(message.Key),
		Value: string(message.Value)}
	for _, header := range message.Headers {
		seen.Headers = append(seen.Headers,
			contract.Header{string(header.Key), string(header.Value)})
	}
	contract.Show(seen)
}

// member prints what its claims bring and commits when a claim has nothing more at hand.
type member struct{}

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (member) ConsumeClaim(session sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			show(message)
			contract.Flush()
			session.MarkMessage(message, "")
			if len(claim.Messages()) == 0 {
				session.Commit()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(words []string) {
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	group, err := sarama.NewConsumerGroup([]string{words[0]}, words[1], settings())
	contract.Check(err)
	go func() {
		for failure := range group.Errors() {
			fmt.Fprintln(os.Stderr, failure)
		}
	}()
	for stopping.Err() == nil {
		if err := group.Consume(stopping, []string{words[2]}, member{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	contract.Check(group.Close())
}

func fetch(words []string) {
	consumer, err := sarama.NewConsumer([]string{words[0]}, settings())
	contract.Check(err)
	late := time.After(contract.Patience)
	for partition, end := range contract.Ends(words[2]) {
		claim, err := consumer.ConsumePartition(words[1], partition, sarama.OffsetOldest)
		contract.Check(err)
		for next := int64(0); next < end; {
			select {
			case message := <-claim.Messages():
				show(message)
				next = message.Offset + 1
			case failure := <-claim.Errors():
				contract.Check(failure)
			case <-late:
				contract.Check(fmt.Errorf("[%d] stops at %d of %d", partition, next, end))
			}
		}
		contract.Check(claim.Close())
	}
	contract.Check(consumer.Close())
}

func committed(words []string) {
	admin := administer(words[0])
	answer, err := admin.ListConsumerGroupOffsets(words[1], nil)
	contract.Check(err)
	found := map[int32]int64{}
	for partition, block := range answer.Blocks[words[2]] {
		if block.Err != sarama.ErrNoError {
			contract.Check(block.Err)
		}
		found[partition] = block.Offset
	}
	contract.Print(found)
	contract.Check(admin.Close())
}

func offsets(words []string) {
	client := connect(words[0])
	partitions, err := client.Partitions(words[1])
	contract.Check(err)
	sort.Slice(partitions, func(a, b int) bool { return partitions[a] < partitions[b] })
	found := []map[int32]int64{}
	for _, when := range []int64{sarama.OffsetOldest, sarama.OffsetNewest,
		contract.Number(words[2])} {
		row := map[int32]int64{}
		for _, partition := range partitions {
			offset, err := client.GetOffset(words[1], partition, when)
			contract.Check(err)
			row[partition] = offset
		}
		found = append(found, row)
	}
	contract.Print(found)
	contract.Check(client.Close())
}

func main() {
	contract.Run(map[string]func([]string){
		"version": version, "create": create, "produce": produce, "consume": consume,
		"fetch": fetch, "committed": committed, "offsets": offsets,
	})
}
