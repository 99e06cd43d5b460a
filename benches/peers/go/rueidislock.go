// rueidislock or valkeylock behind the line protocol; see benches/peers/README.md.
//
// A locker has one client of one deployment: the majority that it takes is over keys there, not over
// masters that know nothing of each other. A list of five such masters is refused: with more than one
// address the client wants a cluster. So it runs as its README sets it up, on the first node alone.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeylock"
	"golang.org/x/sys/unix"
)

// The TTL of what is measured. It belongs to the locker, not to the call.
const ttl = 10 * time.Second

// When a call is given up, and where the settings are tuned, when one attempt is: with `NoLoopTracking`,
// a call whose attempt was given up is not woken by the release of what that attempt had set.
const patience = time.Second

// What both kinds of lockers can do.
type locker interface {
	WithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)
	TryWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)
}

// A lock: its context ends where it is lost, and the call of release returns after the key is gone.
type lock struct {
	ctx     context.Context
	release context.CancelFunc
}

type peer struct {
	locker locker
	held   map[string]lock
}

type answer map[string]any

func now() int64 {
	var time unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &time)
	return time.Nano()
}

func newLocker(client, node string, tuned bool) (locker, error) {
	var next time.Duration
	if tuned {
		next = patience
	}
	if client == "valkeylock" {
		return valkeylock.NewLocker(valkeylock.LockerOption{
			ClientOption: valkey.ClientOption{InitAddress: []string{node}, ForceSingleClient: tuned},
			KeyMajority:  1, KeyValidity: ttl, NoLoopTracking: true, FallbackSETPX: tuned,
			TryNextAfter: next,
		})
	}
	return rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{node}, ForceSingleClient: tuned},
		KeyMajority:  1, KeyValidity: ttl, NoLoopTracking: true, FallbackSETPX: tuned,
		TryNextAfter: next,
	})
}

// Waits for the lock, for so long. A deadline of the context would shorten the TTL.
func (p *peer) lock(key string) (lock, error) {
	parent, giveUp := context.WithCancel(context.Background())
	timer := time.AfterFunc(patience, giveUp)
	ctx, release, err := p.locker.WithContext(parent, key)
	if err == nil && !timer.Stop() {
		release()
		err = context.Canceled
	}
	return lock{ctx, release}, err
}

// Releases it; whether it was held until then.
func (l lock) unlock() bool {
	held := l.ctx.Err() == nil
	l.release()
	return held
}

func (p *peer) answer(words []string) (answer, error) {
	number := func(index int) int64 {
		value, _ := strconv.ParseInt(words[index], 10, 64)
		return value
	}
	ms := func(index int) time.Duration { return time.Duration(number(index)) * time.Millisecond }
	if len(words) == 3 && (words[0] == "try" || words[0] == "lock") && ms(2) != ttl {
		return nil, fmt.Errorf("its TTL is %v", ttl)
	}
	switch {
	case words[0] == "try" && len(words) == 3:
		ctx, release, err := p.locker.TryWithContext(context.Background(), words[1])
		if err != nil {
			return answer{"won": false}, nil
		}
		p.held[words[1]] = lock{ctx, release}
		return answer{"won": true}, nil
	case words[0] == "lock" && len(words) == 3:
		from := now()
		lock, err := p.lock(words[1])
		for errors.Is(err, context.Canceled) {
			lock, err = p.lock(words[1])
		}
		to := now()
		if err == nil {
			p.held[words[1]] = lock
		}
		return answer{"from": from, "to": to}, err
	case words[0] == "unlock" && len(words) == 2 && p.held[words[1]].release != nil:
		lock := p.held[words[1]]
		delete(p.held, words[1])
		from := now()
		held := lock.unlock()
		return answer{"from": from, "to": now(), "held": held}, nil
	case words[0] == "latency" && len(words) == 3:
		return p.latency(ms(1), words[2]), nil
	case words[0] == "cycles" && len(words) == 4:
		return p.cycles(ms(1), int(number(2)), words[3]), nil
	}
	// `extend` and `hold` are for tests/peers, where it has no part: a locker extends by itself.
	return nil, errors.New("no such command")
}

func (p *peer) latency(duration time.Duration, prefix string) answer {
	end := now() + int64(duration)
	us, failed := []float64{}, 0
	for number := 0; now() < end; number++ {
		key := fmt.Sprintf("%s:%06d", prefix, number)
		from := now()
		lock, err := p.lock(key)
		to := now()
		if err != nil {
			failed++
			continue
		}
		us = append(us, float64(to-from)/1e3)
		if !lock.unlock() {
			failed++
		}
	}
	return answer{"us": us, "failed": failed}
}

func (p *peer) cycles(duration time.Duration, workers int, prefix string) answer {
	begin := now()
	end := begin + int64(duration)
	cycles, failed := make([]int, workers), make([]int, workers)
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for now() < end {
				lock, err := p.lock(fmt.Sprintf("%s:%d:%06d", prefix, worker, cycles[worker]))
				if err == nil && lock.unlock() {
					cycles[worker]++
				} else {
					failed[worker]++
				}
			}
		})
	}
	all.Wait()
	seconds := float64(now()-begin) / 1e9
	sum := func(counts []int) (sum int) {
		for _, count := range counts {
			sum += count
		}
		return
	}
	return answer{"cycles": sum(cycles), "failed": sum(failed), "seconds": seconds}
}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return ""
}

func main() {
	client, nodes := os.Args[1], strings.Split(os.Args[2], ",")
	tuned := len(os.Args) > 3 && os.Args[3] == "tuned"
	out := json.NewEncoder(os.Stdout)
	locker, err := newLocker(client, nodes[0], tuned)
	if err != nil {
		_ = out.Encode(answer{"error": err.Error()})
		return
	}
	p := &peer{locker: locker, held: map[string]lock{}}
	versions := "rueidislock of rueidis " + version("github.com/redis/rueidis")
	if client == "valkeylock" {
		versions = "valkeylock of valkey-go " + version("github.com/valkey-io/valkey-go")
	}
	settings := "one server, as its README: `KeyMajority` 1, `NoLoopTracking`"
	if tuned {
		settings += "; `FallbackSETPX`, `ForceSingleClient`, `TryNextAfter` 1 s"
	}
	_ = out.Encode(answer{"versions": versions, "settings": settings})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		reply, err := p.answer(strings.Fields(lines.Text()))
		if err != nil {
			reply = answer{"error": err.Error()}
		}
		_ = out.Encode(reply)
	}
}
