#!/bin/bash
# Installs what some tests need beside the lock files: Java for Spark, hosts in network namespaces, Fashion-MNIST.
# Where that is not possible, it says so and succeeds: those tests are then skipped, each with its reason.
set -uo pipefail

lacking=()
[ -x "$(PATH=$PATH:/usr/sbin:/sbin command -v ip)" ] || lacking+=(iproute2)
[ -x "$(PATH=$PATH:/usr/sbin:/sbin command -v nft)" ] || lacking+=(nftables)
[ -n "${JAVA_HOME:-}" ] || command -v java > /dev/null || lacking+=(openjdk-17-jre-headless)
[ -e /usr/share/datasets/fashion-mnist ] || lacking+=(dataset-fashion-mnist)
((${#lacking[@]})) || exit 0

refuse() { # refuse WHY PACKAGE...
    local why=$1
    shift
    echo "tests that need $* are skipped: $why" >&2
    exit 0
}
command -v apt-get > /dev/null || refuse "there is no apt-get to install them with" "${lacking[@]}"
[ "$(id -u)" = 0 ] || refuse "installing them needs root (apt-get install ${lacking[*]})" "${lacking[@]}"
echo "installing ${lacking[*]}"
export DEBIAN_FRONTEND=noninteractive
network=(-o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Acquire::Retries=1)
apt-get "${network[@]}" update -qq > /dev/null
install() { # install PACKAGE
    apt-get "${network[@]}" install -qq -y --no-install-recommends "$1" > /dev/null
}
# One by one: a release may lack one of them, and the tests of the others are not to be skipped for it.
failed=()
for package in "${lacking[@]}"; do
    install "$package" || { [[ $package = openjdk-* ]] && install default-jre-headless; } || failed+=("$package")
done
((${#failed[@]} == 0)) || refuse "apt-get cannot install them" "${failed[@]}"
