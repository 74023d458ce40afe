#!/bin/sh
# Copies the files of configurations.tsv, each at its commit, into DIRECTORY/PROGRAM/OWNER+NAME.ENDING.
# Usage: fetch.sh DIRECTORY [URL of the files of repositories]
set -eu
directory=$1
base=${2:-https://raw.githubusercontent.com}
tail -n +2 "$(dirname "$0")/configurations.tsv" |
while IFS="$(printf '\t')" read -r program repository commit path _; do
    mkdir -p "$directory/$program"
    file=$directory/$program/$(printf '%s' "$repository" | tr / +).${path##*.}
    curl --fail --silent --show-error --output "$file" "$base/$repository/$commit/$path"
done
