// redsync behind the line protocol, over redigo or go-redis; see benches/peers/README.md.
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

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	redigolib "github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// The TTL of what is measured.
const ttl = 10 * time.Second

// When a node without an answer is given up, where the settings are tuned.
const nodeTimeout = 50 * time.Millisecond

type peer struct {
	rs      *redsync.Redsync
	tuned   bool
	options []redsync.Option
	held    map[string]*redsync.Mutex
}

type answer map[string]any

func now() int64 {
	var time unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &time)
	return time.Nano()
}

// The pool of redsync's own example for redigo, or one that keeps a connection for each worker.
func redigoPool(node string, tuned bool) redis.Pool {
	pool := &redigolib.Pool{
		MaxIdle:     3,
		IdleTimeout: 240 * time.Second,
		Dial:        func() (redigolib.Conn, error) { return redigolib.Dial("tcp", node) },
		TestOnBorrow: func(c redigolib.Conn, _ time.Time) error {
			_, err := c.Do("PING")
			return err
		},
	}
	if tuned {
		pool.MaxIdle = 64
		pool.TestOnBorrow = nil
		pool.Dial = func() (redigolib.Conn, error) {
			return redigolib.Dial("tcp", node, redigolib.DialConnectTimeout(nodeTimeout),
				redigolib.DialReadTimeout(nodeTimeout), redigolib.DialWriteTimeout(nodeTimeout))
		}
	}
	return redigo.NewPool(pool)
}

func goredisPool(node string, tuned bool) redis.Pool {
	options := &goredislib.Options{Addr: node}
	if tuned {
		options.PoolSize = 64
		options.MaxRetries = -1
		options.ReadTimeout = nodeTimeout
		options.WriteTimeout = nodeTimeout
		options.ContextTimeoutEnabled = true
	}
	return goredis.NewPool(goredislib.NewClient(options))
}

func (p *peer) mutex(key string, ttl time.Duration) *redsync.Mutex {
	return p.rs.NewMutex(key, append([]redsync.Option{redsync.WithExpiry(ttl)}, p.options...)...)
}

// Waits for the lock: redsync gives up after its tries, its users call it again.
func lock(mutex *redsync.Mutex) error {
	for {
		err := mutex.Lock()
		var taken *redsync.ErrTaken
		if errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) {
			continue
		}
		return err
	}
}

func (p *peer) answer(words []string) (answer, error) {
	number := func(index int) int64 {
		value, _ := strconv.ParseInt(words[index], 10, 64)
		return value
	}
	ms := func(index int) time.Duration { return time.Duration(number(index)) * time.Millisecond }
	switch {
	case words[0] == "try" && len(words) == 3:
		mutex := p.mutex(words[1], ms(2))
		if err := mutex.TryLock(); err != nil {
			return answer{"won": false}, nil
		}
		p.held[words[1]] = mutex
		return answer{"won": true}, nil
	case words[0] == "lock" && len(words) == 3:
		mutex := p.mutex(words[1], ms(2))
		from := now()
		err := lock(mutex)
		to := now()
		p.held[words[1]] = mutex
		return answer{"from": from, "to": to}, err
	case words[0] == "unlock" && len(words) == 2 && p.held[words[1]] != nil:
		mutex := p.held[words[1]]
		delete(p.held, words[1])
		from := now()
		held, _ := mutex.Unlock()
		return answer{"from": from, "to": now(), "held": held}, nil
	case words[0] == "extend" && len(words) == 3 && p.held[words[1]] != nil:
		// Its TTL is the mutex's own.
		held, _ := p.held[words[1]].Extend()
		return answer{"held": held}, nil
	case words[0] == "hold" && len(words) == 5:
		return p.hold(words[1], ms(2), ms(3), ms(4))
	case words[0] == "latency" && len(words) == 3:
		return p.latency(ms(1), words[2]), nil
	case words[0] == "cycles" && len(words) == 4:
		return p.cycles(ms(1), int(number(2)), words[3]), nil
	}
	return nil, errors.New("no such command")
}

func (p *peer) hold(key string, ttl, hold, duration time.Duration) (answer, error) {
	end := now() + int64(duration)
	held := [][2]int64{}
	for now() < end {
		mutex := p.mutex(key, ttl)
		if err := lock(mutex); err != nil {
			return nil, err
		}
		from := now()
		time.Sleep(hold)
		to := now()
		_, _ = mutex.Unlock()
		held = append(held, [2]int64{from, to})
	}
	return answer{"held": held}, nil
}

func (p *peer) latency(duration time.Duration, prefix string) answer {
	end := now() + int64(duration)
	us, failed := []float64{}, 0
	for number := 0; now() < end; number++ {
		mutex := p.mutex(fmt.Sprintf("%s:%06d", prefix, number), ttl)
		from := now()
		err := mutex.Lock()
		to := now()
		if err != nil {
			failed++
			continue
		}
		us = append(us, float64(to-from)/1e3)
		if held, _ := mutex.Unlock(); !held {
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
				mutex := p.mutex(fmt.Sprintf("%s:%d:%06d", prefix, worker, cycles[worker]), ttl)
				if mutex.Lock() != nil {
					failed[worker]++
				} else if held, _ := mutex.Unlock(); !held {
					failed[worker]++
				} else {
					cycles[worker]++
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
	driver, nodes := os.Args[1], strings.Split(os.Args[2], ",")
	p := &peer{tuned: len(os.Args) > 3 && os.Args[3] == "tuned", held: map[string]*redsync.Mutex{}}
	versions := "redsync " + version("github.com/go-redsync/redsync/v4")
	var settings string
	// Its own delay is random, from 50 to 250 ms.
	retry := 250
	pools := []redis.Pool{}
	for _, node := range nodes {
		if driver == "redigo" {
			pools = append(pools, redigoPool(node, p.tuned))
		} else {
			pools = append(pools, goredisPool(node, p.tuned))
		}
	}
	if driver == "redigo" {
		versions += ", redigo " + version("github.com/gomodule/redigo")
		settings = "the pool of its example (`MaxIdle` 3, `TestOnBorrow`)"
		if p.tuned {
			settings = "`MaxIdle` 64, timeouts 50 ms, no `TestOnBorrow`"
		}
	} else {
		versions += ", go-redis " + version("github.com/redis/go-redis/v9")
		settings = "`NewClient` with an address, as its README"
		if p.tuned {
			settings = "`PoolSize` 64, timeouts 50 ms, no retries"
		}
	}
	p.rs = redsync.New(pools...)
	if p.tuned {
		settings += ", `WithFailFast`, retries after 5 ms"
		retry = 5
		p.options = []redsync.Option{redsync.WithFailFast(true), redsync.WithTries(1000),
			redsync.WithRetryDelay(5 * time.Millisecond)}
	}
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode(answer{"versions": versions, "settings": settings, "retry_ms": retry})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		reply, err := p.answer(strings.Fields(lines.Text()))
		if err != nil {
			reply = answer{"error": err.Error()}
		}
		_ = out.Encode(reply)
	}
}
