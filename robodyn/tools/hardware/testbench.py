"""The testbench: a C++ program around Verilator's model of a datapath, with random stalls on either side."""

from __future__ import annotations


def testbench(module: str, width: int, inputs: int, outputs: int, flagged: bool) -> str:
    """The source text of the testbench, which reads states from a file, streams them through and writes the results.

    Arguments of the program: the file of inputs and the file of outputs, with a line of words for each state; the
    number of stalled cycles per thousand on each side; a seed; optionally a file of expected outputs. A line of outputs
    ends with the overflow flag. The program prints the number of states, the cycles from the first input to the last
    output, the cycles to the first result, and the number of words that differ.
    """
    wrapped = "top->out_wrapped" if flagged else "0"
    return (
        _TEXT.replace("@MODULE@", module)
        .replace("@WIDTH@", str(width))
        .replace("@INPUTS@", str(inputs))
        .replace("@OUTPUTS@", str(outputs))
        .replace("@WRAPPED@", wrapped)
    )


_TEXT = """\
// Streams states through the datapath: see README.md beside this file.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>
#include "V@MODULE@.h"
#include "verilated.h"

static const int WIDTH = @WIDTH@, INPUTS = @INPUTS@, OUTPUTS = @OUTPUTS@;
typedef std::vector<std::vector<int64_t> > Table;

// A port of at most 64 bits is an integer, a wider one an array of words of 32 bits.
template <class Port> static typename std::enable_if<std::is_integral<Port>::value>::type
put(Port &port, int bit, bool value) {
    if (value) port |= Port(1) << bit; else port &= ~(Port(1) << bit);
}
template <class Port> static typename std::enable_if<!std::is_integral<Port>::value>::type
put(Port &port, int bit, bool value) {
    if (value) port[bit / 32] |= 1u << bit % 32; else port[bit / 32] &= ~(1u << bit % 32);
}
template <class Port> static typename std::enable_if<std::is_integral<Port>::value, bool>::type
get(const Port &port, int bit) { return port >> bit & 1; }
template <class Port> static typename std::enable_if<!std::is_integral<Port>::value, bool>::type
get(const Port &port, int bit) { return port[bit / 32] >> bit % 32 & 1; }

static Table read(const char *name) {
    Table rows;
    std::ifstream file(name);
    if (!file) { std::fprintf(stderr, "cannot read %s\\n", name); std::exit(2); }
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        rows.push_back(std::vector<int64_t>());
        for (int64_t word; words >> word;) rows.back().push_back(word);
    }
    return rows;
}

static uint64_t state;
static bool stalls(uint64_t thousandths) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state % 1000 < thousandths;
}

int main(int argc, char **argv) {
    if (argc < 5) { std::fprintf(stderr, "usage: %s INPUTS OUTPUTS STALLS SEED [EXPECTED]\\n", argv[0]); return 2; }
    const Table given = read(argv[1]);
    const uint64_t thousandths = std::strtoull(argv[3], 0, 10);
    state = std::strtoull(argv[4], 0, 10) * 2654435769u + 1;
    V@MODULE@ *top = new V@MODULE@;
    top->rst = 1; top->in_valid = 0; top->out_ready = 0; top->clk = 0; top->eval();
    top->clk = 1; top->eval();
    top->rst = 0;
    Table found;
    size_t sent = 0;
    long long cycle = 0, began = -1, first = -1, last = -1, quiet = 0;
    while (found.size() < given.size() && quiet < 1000000) {
        top->clk = 0;
        // What was offered stays until it is taken.
        if (sent < given.size() && (top->in_valid || !stalls(thousandths))) {
            for (int k = 0; k < INPUTS; k++)
                for (int bit = 0; bit < WIDTH; bit++) put(top->in_data, k * WIDTH + bit, given[sent][k] >> bit & 1);
            top->in_valid = 1;
        }
        top->out_ready = !stalls(thousandths);
        top->eval();
        const bool taken = top->in_valid && top->in_ready, done = top->out_valid && top->out_ready;
        if (done) {
            std::vector<int64_t> row;
            for (int k = 0; k < OUTPUTS; k++) {
                uint64_t word = 0;
                for (int bit = 0; bit < WIDTH; bit++) word |= uint64_t(get(top->out_data, k * WIDTH + bit)) << bit;
                row.push_back(int64_t(word << (64 - WIDTH)) >> (64 - WIDTH));
            }
            row.push_back(@WRAPPED@);
            found.push_back(row);
            last = cycle;
        }
        if (top->out_valid && first < 0) first = cycle;
        if (taken) { if (began < 0) began = cycle; sent++; }
        top->clk = 1; top->eval();
        if (taken) top->in_valid = 0;
        quiet = done || taken ? 0 : quiet + 1;
        cycle++;
    }
    std::ofstream out(argv[2]);
    for (const std::vector<int64_t> &row : found)
        for (size_t k = 0; k < row.size(); k++) out << row[k] << (k + 1 < row.size() ? ' ' : '\\n');
    long long different = 0;
    if (argc > 5) {
        const Table expected = read(argv[5]);
        for (size_t r = 0; r < found.size(); r++)
            for (size_t k = 0; k < found[r].size(); k++)
                different += r >= expected.size() || k >= expected[r].size() || found[r][k] != expected[r][k];
    }
    const size_t lost = given.size() - found.size();
    std::printf("states %zu cycles %lld latency %lld different %lld lost %zu\\n", found.size(), last - began,
                first - began - 1, different, lost);
    delete top;
    return different || lost ? 1 : 0;
}
"""
