// redsync over redigo or go-redis.
package main

import (
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	redigolib "github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"
)

// When a node without an answer is given up, where the settings are tuned.
const nodeTimeout = 50 * time.Millisecond

type redsyncClient struct {
	rs      *redsync.Redsync
	options []redsync.Option
	told    answer
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

func init() {
	for _, driver := range []string{"redigo", "goredis"} {
		clients["redsync-"+driver] = func(nodes []string, tuned bool) (client, error) {
			return newRedsync(driver, nodes, tuned), nil
		}
	}
}

func newRedsync(driver string, nodes []string, tuned bool) *redsyncClient {
	versions := "redsync " + version("github.com/go-redsync/redsync/v4")
	var settings string
	// Its own delay is random, from 50 to 250 ms.
	retry := 250
	pools := []redis.Pool{}
	for _, node := range nodes {
		if driver == "redigo" {
			pools = append(pools, redigoPool(node, tuned))
		} else {
			pools = append(pools, goredisPool(node, tuned))
		}
	}
	if driver == "redigo" {
		versions += ", redigo " + version("github.com/gomodule/redigo")
		settings = "the pool of its example (`MaxIdle` 3, `TestOnBorrow`)"
		if tuned {
			settings = "`MaxIdle` 64, timeouts 50 ms, no `TestOnBorrow`"
		}
	} else {
		versions += ", go-redis " + version("github.com/redis/go-redis/v9")
		settings = "`NewClient` with an address, as its README"
		if tuned {
			settings = "`PoolSize` 64, timeouts 50 ms, no retries"
		}
	}
	var options []redsync.Option
	if tuned {
		settings += ", `WithFailFast`, retries after 5 ms"
		retry = 5
		options = []redsync.Option{redsync.WithFailFast(true), redsync.WithTries(1000),
			redsync.WithRetryDelay(5 * time.Millisecond)}
	}
	told := answer{"versions": versions, "settings": settings, "retry_ms": retry}
	return &redsyncClient{redsync.New(pools...), options, told}
}

func (c *redsyncClient) greeting() answer { return c.told }

func (c *redsyncClient) lock(key string, ttl time.Duration) (lock, error) {
	options := append([]redsync.Option{redsync.WithExpiry(ttl)}, c.options...)
	return redsyncLock{c.rs.NewMutex(key, options...)}, nil
}

type redsyncLock struct{ mutex *redsync.Mutex }

func (l redsyncLock) try() error  { return l.mutex.TryLock() }
func (l redsyncLock) take() error { return l.mutex.Lock() }

// redsync gives up after its tries, and its users call it again.
func (l redsyncLock) wait() error {
	for {
		err := l.mutex.Lock()
		var taken *redsync.ErrTaken
		if errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) {
			continue
		}
		return err
	}
}

// Its TTL is the mutex's own.
func (l redsyncLock) extend() (bool, error) {
	held, _ := l.mutex.Extend()
	return held, nil
}

func (l redsyncLock) unlock() bool {
	held, _ := l.mutex.Unlock()
	return held
}
