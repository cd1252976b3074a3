package netconf

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
)

// Load reads a network's file as libcni does, with the plugins in the network's folder.
func Load(path string) (*libcni.NetworkConfigList, error) {
	if file, err := os.Stat(path); err != nil {
		return nil, err
	} else if !file.Mode().IsRegular() { // a pipe would be waited for
		return nil, fmt.Errorf("%s is not a file (%s)", path, file.Mode())
	}
	list, err := load(path)
	if err != nil {
		if text, unread := os.ReadFile(path); unread == nil {
			if action, _ := Template(text); action != "" {
				err = fmt.Errorf("it is a template, not a network: %s", WhatToDo(action))
			}
		}
		return nil, err
	}
	return list, nil
}

// Find returns the file of a directory that has the network called name, "" if none has. Multus looks so for that of a definition without a
// configuration.
func Find(dir, name string) string {
	files, _ := libcni.ConfFiles(dir, []string{".conf", ".json", ".conflist"})
	for _, file := range files {
		if list, err := Load(file); err == nil && list.Name == name {
			return file
		}
	}
	return ""
}

func load(path string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(path) == ".conflist" {
		return libcni.NetworkConfFromFile(path)
	}
	//lint:ignore SA1019 single-plugin files are old, and runtimes still read them
	conf, err := libcni.ConfFromFile(path)
	if err != nil {
		return nil, err
	}
	//lint:ignore SA1019 as above
	return libcni.ConfListFromConf(conf)
}
