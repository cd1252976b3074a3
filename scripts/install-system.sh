#!/bin/bash
# Puts into a directory what a system has of cnibox, for a distribution's package: install-system.sh BIN DESTDIR PLUGINDIR ZSHDIR. `make install-system`
# calls it. It needs no rights. share has what `make release` puts into the vendored source archive; without it there are no manual pages.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1 root=$2 plugins=$3 zsh=$4
: "${root:?say where to: DESTDIR}"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}

"$bin/cnictl" install --dir "$root$plugins" >/dev/null
rm "$root$plugins/.cnibox.json" # a package manager keeps its own list

install -D -m 755 -t "$root/usr/bin" "$bin/cnictl"
install -D -m 644 -t "$root/usr/lib/systemd/system" dist/systemd/*
sed -i "s|^ExecStart=/opt/cni/bin/dhcp daemon|ExecStart=$plugins/cnibox dhcp daemon|" "$root/usr/lib/systemd/system/cnibox-dhcp.service"
install -D -m 644 -t "$root/usr/lib/systemd/network" dist/network/*
install -D -m 644 -t "$root/usr/lib/NetworkManager/conf.d" dist/NetworkManager/*
install -D -m 644 -t "$root/usr/lib/tmpfiles.d" dist/tmpfiles/*

complete() { mkdir -p "$root$(dirname "$2")" && "$bin/cnictl" completion "$1" >"$root$2"; }
complete bash /usr/share/bash-completion/completions/cnictl
complete zsh "$zsh/_cnictl"
complete fish /usr/share/fish/vendor_completions.d/cnictl.fish

if [[ -d share/man ]]; then
	install -D -m 644 -t "$root/usr/share/man/man1" share/man/man1/*
	gzip -n9 "$root"/usr/share/man/man1/*
fi

# What the packages run when they come and go, each with its own units.
for package in cnibox cnictl; do
	units=
	for unit in dist/systemd/*; do
		case ${unit##*/} in cnibox-dhcp.*) owner=cnibox ;; *) owner=cnictl ;; esac
		[[ $owner != "$package" ]] || units+=" ${unit##*/}"
	done
	for script in postinst prerm; do
		sed "s/@UNITS@/${units# }/" "dist/packages/$script" >"$bin/$package.$script"
	done
done
