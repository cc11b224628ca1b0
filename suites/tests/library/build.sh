#!/usr/bin/env bash
# build.sh FOLDER [FLAGS]: see README.md
set -euo pipefail
folder=$1 flags=${2:-}
example=${ASSAY_SOURCE_DIR:?}/probes/example
rm -rf "$folder"
mkdir -p "$folder"
DESTDIR=$folder/stage cmake --install "${ASSAY_BUILD_DIR:?}" --prefix /usr >"$folder/install.log"
lib=$(dirname "$(find "$folder/stage" -name assay.pc)")
export PKG_CONFIG_PATH=$lib LD_LIBRARY_PATH=$(dirname "$lib")
# pkg-config calls this folder a system one only where it is; -I and -L stay
read -ra words <<<"$(pkg-config --cflags --libs assay) $flags"
cc -std=c99 -Wall -Wextra -Werror -pedantic "$example/norm_engine.c" -o "$folder/by_hand" "${words[@]}" -lm
c++ -std=c++11 -Wall -Wextra -Werror -pedantic "$example/ten_lines.cpp" -o "$folder/ten_lines_by_hand" "${words[@]}"
cmake -S "$example" -B "$folder/cmake" -DCMAKE_PREFIX_PATH="$folder/stage/usr" -DCMAKE_C_FLAGS="$flags" \
    -DCMAKE_CXX_FLAGS="$flags" >"$folder/cmake.log"
cmake --build "$folder/cmake" >>"$folder/cmake.log"
# nothing but what assay.h declares leaves the shared library, under its number
grep -oE '\bassay_[a-z_]+\(' "$folder/stage/usr/include/assay.h" | tr -d '(' | sort -u >"$folder/declared"
nm -D --defined-only "$(dirname "$lib")/libassay.so" | awk '{ print $3 }' | sort -u >"$folder/exported"
comm -13 "$folder/declared" "$folder/exported" | { ! grep .; }
readelf -d "$(dirname "$lib")/libassay.so" | grep -q 'SONAME.*\[libassay\.so\.1\]'
