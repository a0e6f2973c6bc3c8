// Package contract has what the Go adapters share: the lines they read and print, and the choice
// of a step by the command line. tests/clients/client.py has the contract.
package contract

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// Patience bounds each wait for a broker.
const Patience = 60 * time.Second

// Header is a name and its text.
type Header [2]string

// Sent is a line of the producer's standard input.
type Sent struct {
	Key, Value string
	Headers    []Header
}

// Seen is a record as a consumer prints it.
type Seen struct {
	Partition         int32
	Offset, Timestamp int64
	Key, Value        string
	Headers           []Header
}

var (
	lock sync.Mutex
	out  = bufio.NewWriter(os.Stdout)
)

// Check ends the program with an error's words.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Print writes a value as a line.
func Print(value any) {
	data, err := json.Marshal(value)
	Check(err)
	lock.Lock()
	defer lock.Unlock()
	_, err = fmt.Fprintln(out, string(data))
	Check(err)
}

// Flush hands over what was printed, which comes before a commit.
func Flush() {
	lock.Lock()
	defer lock.Unlock()
	Check(out.Flush())
}

// Show prints a record.
func Show(seen Seen) {
	headers := seen.Headers
	if headers == nil {
		headers = []Header{}
	}
	Print([]any{seen.Partition, seen.Offset, seen.Timestamp, seen.Key, seen.Value, headers})
}

// ReadSent calls `each` for each line of standard input.
func ReadSent(each func(Sent)) {
	lines := bufio.NewReader(os.Stdin)
	decoder := json.NewDecoder(lines)
	for decoder.More() {
		var sent Sent
		parts := []any{&sent.Key, &sent.Value, &sent.Headers}
		Check(decoder.Decode(&parts))
		each(sent)
	}
}

// Ends reads {"partition": end, …} and leaves out partitions that are empty.
func Ends(text string) map[int32]int64 {
	var named map[string]int64
	Check(json.Unmarshal([]byte(text), &named))
	ends := map[int32]int64{}
	for name, end := range named {
		if end > 0 {
			ends[int32(Number(name))] = end
		}
	}
	return ends
}

// Number reads a word of the command line.
func Number(text string) int64 {
	number, err := strconv.ParseInt(text, 10, 64)
	Check(err)
	return number
}

// Run does the step that the command line names.
func Run(steps map[string]func([]string)) {
	if len(os.Args) < 2 || steps[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "no such step:", os.Args)
		os.Exit(2)
	}
	steps[os.Args[1]](os.Args[2:])
	Flush()
}
