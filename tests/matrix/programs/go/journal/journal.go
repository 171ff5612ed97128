// Package journal holds the options that every member takes, and the JSON lines that every member prints.
package journal

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// Options are the same for every member of the matrix.
type Options struct {
	Bootstrap, Group, Topic, Name, Protocol, Assignor, Instance string
	Session, Heartbeat                                          time.Duration
}

var mutex sync.Mutex

// Parse reads the command line, and returns a context that SIGTERM ends.
func Parse() (Options, context.Context) {
	var o Options
	var session, heartbeat int
	flag.StringVar(&o.Bootstrap, "bootstrap", "", "")
	flag.StringVar(&o.Group, "group", "", "")
	flag.StringVar(&o.Topic, "topic", "", "")
	flag.StringVar(&o.Name, "name", "", "")
	flag.StringVar(&o.Protocol, "protocol", "classic", "")
	flag.StringVar(&o.Assignor, "assignor", "range", "")
	flag.StringVar(&o.Instance, "instance", "", "")
	flag.IntVar(&session, "session-ms", 10000, "")
	flag.IntVar(&heartbeat, "heartbeat-ms", 1000, "")
	flag.Parse()
	o.Session, o.Heartbeat = time.Duration(session)*time.Millisecond, time.Duration(heartbeat)*time.Millisecond
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return o, ctx
}

func emit(fields map[string]any) {
	mutex.Lock()
	defer mutex.Unlock()
	fields["t"] = time.Now().UnixMilli()
	line, _ := json.Marshal(fields)
	os.Stdout.Write(append(line, '\n'))
}

// Started names the version of the library that this program was built with.
func Started(module, name string) {
	version := name
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				version = name + " " + m.Version
			}
		}
	}
	emit(map[string]any{"e": "started", "version": version})
}

// Partitions prints an assigned, revoked or lost event.
func Partitions[N int | int32](event string, partitions []N) {
	if partitions == nil {
		partitions = []N{}
	}
	emit(map[string]any{"e": event, "partitions": partitions})
}

// Consumed prints one record's place.
func Consumed(partition int, offset int64) {
	emit(map[string]any{"e": "consumed", "partition": partition, "offset": offset})
}

// Plain prints an event without fields.
func Plain(event string) { emit(map[string]any{"e": event}) }

// Error prints what went wrong.
func Error(err error) { emit(map[string]any{"e": "error", "text": err.Error()}) }
