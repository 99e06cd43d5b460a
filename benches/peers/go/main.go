// The clients in Go behind the line protocol; see benches/peers/README.md. The first argument names
// the client.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The TTL of what is measured.
const ttl = 10 * time.Second

// A client, set up for its nodes.
type client interface {
	// What the first line tells of it.
	greeting() answer
	// A lock that no call has asked for yet.
	lock(key string, ttl time.Duration) (lock, error)
}

type lock interface {
	// One attempt.
	try() error
	// The client's own call, with as many attempts as it makes.
	take() error
	// Waits for the lock, also where its users have to call again.
	wait() error
	extend() (bool, error)
	// Releases it; whether it was held until then.
	unlock() bool
}

type peer struct {
	client client
	held   map[string]lock
}

type answer map[string]any

func now() int64 {
	var time unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &time)
	return time.Nano()
}

func (p *peer) answer(words []string) (answer, error) {
	number := func(index int) int64 {
		value, _ := strconv.ParseInt(words[index], 10, 64)
		return value
	}
	ms := func(index int) time.Duration { return time.Duration(number(index)) * time.Millisecond }
	switch {
	case words[0] == "try" && len(words) == 3:
		lock, err := p.client.lock(words[1], ms(2))
		if err != nil {
			return nil, err
		}
		if lock.try() != nil {
			return answer{"won": false}, nil
		}
		p.held[words[1]] = lock
		return answer{"won": true}, nil
	case words[0] == "lock" && len(words) == 3:
		lock, err := p.client.lock(words[1], ms(2))
		if err != nil {
			return nil, err
		}
		from := now()
		err = lock.wait()
		to := now()
		if err == nil {
			p.held[words[1]] = lock
		}
		return answer{"from": from, "to": to}, err
	case words[0] == "unlock" && len(words) == 2 && p.held[words[1]] != nil:
		lock := p.held[words[1]]
		delete(p.held, words[1])
		from := now()
		held := lock.unlock()
		return answer{"from": from, "to": now(), "held": held}, nil
	case words[0] == "extend" && len(words) == 3 && p.held[words[1]] != nil:
		held, err := p.held[words[1]].extend()
		return answer{"held": held}, err
	case words[0] == "hold" && len(words) == 5:
		return p.hold(words[1], ms(2), ms(3), ms(4))
	case words[0] == "latency" && len(words) == 3:
		return p.latency(ms(1), words[2])
	case words[0] == "cycles" && len(words) == 4:
		return p.cycles(ms(1), int(number(2)), words[3]), nil
	}
	return nil, errors.New("no such command")
}

func (p *peer) hold(key string, ttl, hold, duration time.Duration) (answer, error) {
	end := now() + int64(duration)
	held := [][2]int64{}
	for now() < end {
		lock, err := p.client.lock(key, ttl)
		if err == nil {
			err = lock.wait()
		}
		if err != nil {
			return nil, err
		}
		from := now()
		time.Sleep(hold)
		to := now()
		lock.unlock()
		held = append(held, [2]int64{from, to})
	}
	return answer{"held": held}, nil
}

func (p *peer) latency(duration time.Duration, prefix string) (answer, error) {
	end := now() + int64(duration)
	us, failed := []float64{}, 0
	for number := 0; now() < end; number++ {
		lock, err := p.client.lock(fmt.Sprintf("%s:%06d", prefix, number), ttl)
		if err != nil {
			return nil, err
		}
		from := now()
		err = lock.take()
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
	return answer{"us": us, "failed": failed}, nil
}

func (p *peer) cycles(duration time.Duration, workers int, prefix string) answer {
	begin := now()
	end := begin + int64(duration)
	cycles, failed := make([]int, workers), make([]int, workers)
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for now() < end {
				lock, err := p.client.lock(fmt.Sprintf("%s:%d:%06d", prefix, worker, cycles[worker]), ttl)
				if err == nil && lock.take() == nil && lock.unlock() {
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

// How to set up each client that this program was built with, by name.
var clients = map[string]func(nodes []string, tuned bool) (client, error){}

func main() {
	tuned := len(os.Args) > 3 && os.Args[3] == "tuned"
	out := json.NewEncoder(os.Stdout)
	client, err := clients[os.Args[1]](strings.Split(os.Args[2], ","), tuned)
	if err != nil {
		_ = out.Encode(answer{"error": err.Error()})
		return
	}
	p := &peer{client: client, held: map[string]lock{}}
	_ = out.Encode(client.greeting())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		reply, err := p.answer(strings.Fields(lines.Text()))
		if err != nil {
			reply = answer{"error": err.Error()}
		}
		_ = out.Encode(reply)
	}
}
