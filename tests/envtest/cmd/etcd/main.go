// Command etcd is the upstream etcd server, built as an ordinary Go dependency for tests.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
