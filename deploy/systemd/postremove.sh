#!/bin/sh
# State and cache stay: /var/lib/ulisse holds what cannot be computed again.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
