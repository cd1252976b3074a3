// Package upgrade moves nodes from the reference plugins to cnibox and back,
// with containers on them: what one has made the other has to check and remove. The reference plugins are built from test/reference.
//
//	go test ./test/upgrade -run TestUpgrade
//	go test ./test/upgrade -run TestReplaceUnderLoad -v -args -long # 50 replacements during 500 calls
package upgrade
