#!/bin/sh
# Stops the services when the package goes, not when it is upgraded ($1 is then
# "upgrade" for dpkg and 1 for rpm).
set -e
case "${1:-}" in
remove | purge | 0)
  if [ -d /run/systemd/system ]; then
    systemctl disable --now ulisse-worker.service ulisse-coordinator.service
  fi
  ;;
esac
