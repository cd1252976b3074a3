// A program around go-cni, the library with which containerd, nerdctl and BuildKit call plugins.
module github.com/cnibox/cnibox/test/runtimes/gocni

go 1.26.0

require github.com/containerd/go-cni v1.1.14

require (
	github.com/containernetworking/cni v1.3.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/petermattis/goid v0.0.0-20240813172612-4fcff4a6cae7 // indirect
	github.com/sasha-s/go-deadlock v0.3.5 // indirect
	go.opentelemetry.io/otel v1.29.0 // indirect
	go.opentelemetry.io/otel/metric v1.29.0 // indirect
	go.opentelemetry.io/otel/trace v1.29.0 // indirect
)
