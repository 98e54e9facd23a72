// Command interop is for tests only: a real etcd, and etcd's own concurrency client as an opponent.
//
//	interop etcd JSON         runs one member until standard input ends; prints "ready" when it serves
//	interop opponent URL KIND NAME TTL   a Mutex or an Election, driven by lines on standard input
package main

import (
	"fmt"
	"os"
)

func main() {
	run := map[string]func([]string) error{"etcd": etcd, "opponent": opponent, "bench": bench}
	if len(os.Args) < 2 || run[os.Args[1]] == nil {
		fail(fmt.Errorf("interop etcd|opponent|bench"))
	}
	if err := run[os.Args[1]](os.Args[2:]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "interop:", err)
	os.Exit(1)
}
