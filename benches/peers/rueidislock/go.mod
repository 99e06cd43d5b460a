module peer-rueidislock

go 1.26.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/valkey-io/valkey-go v1.0.79
	golang.org/x/sys v0.49.0
)
