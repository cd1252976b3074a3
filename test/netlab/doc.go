// Package netlab is the laboratory the end-to-end tests run in: whole nodes made of Linux namespaces, with pods, an
// outside network, real packets and real plugin processes, none of which can reach the machine the tests run on.
//
// A test package hands its TestMain to [Main]. Every test then makes the nodes it needs:
//
//	func TestMain(m *testing.M) { netlab.Main(m) }
//
//	func TestPodReachesOutside(t *testing.T) {
//		host := netlab.NewHost(t)
//		host.InstallPlugins(t, "bridge", "host-local")
//		outside, pod := host.NewOutside(t), host.NewPod(t, "web")
//		result, err := host.AddList(conflist, pod.RuntimeConf(nil))
//		…
//		server := outside.ServeTCP(t, "192.0.2.254:80")
//		reply, err := pod.DialTCP(server.String(), netlab.Patience) // "outside saw 192.0.2.1": masqueraded
//	}
//
// Functions that can only fail because the laboratory itself is broken take a testing.TB and end the test; functions
// whose failure a test may be about return an error. What a function makes is dropped when the test it was given ends.
package netlab
