// Package version says which cnibox this is.
package version

// Cnibox is the version of this release.
const Cnibox = "0.1.0"

// Plugins is what each plugin calls itself: the version of the reference
// plugins it stands for, since programs compare it (nerdctl wants firewall to
// be at least 1.0.0), with ours as build metadata.
const Plugins = "1.9.1+cnibox." + Cnibox
