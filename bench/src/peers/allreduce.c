/* Benchmark rank for Open MPI and MPICH: repeated in-place sums of floats.
 *
 *   allreduce NAME:BUDGET_US:LENGTH[,LENGTH...] ...
 *
 * A case is one call (one length) or a step of many (several). Rank 0 prints one line per case and API variant:
 *   case NAME VARIANT NANOSECONDS NANOSECONDS ...
 * one value per batch, each the mean of the calls in it. The contract and its reasons are in
 * bench/src/allreduce/worker.rs and hold here without change.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_TENSORS 4096
#define BATCHES 10
#define MIN_BATCHES 3

static int rank, size, count;
static int lengths[MAX_TENSORS];
static float *tensors[MAX_TENSORS];
static MPI_Request requests[MAX_TENSORS];
static MPI_Status statuses[MAX_TENSORS];

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void blocking(void)
{
    for (int t = 0; t < count; t++)
        MPI_Allreduce(MPI_IN_PLACE, tensors[t], lengths[t], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void nonblocking(void)
{
    for (int t = 0; t < count; t++)
        MPI_Iallreduce(MPI_IN_PLACE, tensors[t], lengths[t], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[t]);
    MPI_Waitall(count, requests, statuses);
}

static void fill(int zero)
{
    for (int t = 0; t < count; t++)
        for (int i = 0; i < lengths[t]; i++)
            tensors[t][i] = zero ? 0 : rank + 1 + i % 7;
}

static void check(const char *name, const char *variant)
{
    for (int t = 0; t < count; t++)
        for (int i = 0; i < lengths[t]; i++)
            if (tensors[t][i] != size * (size + 1) / 2 + size * (i % 7)) {
                fprintf(stderr, "rank %d: case %s %s: element %d of tensor %d is wrong\n", rank, name, variant, i, t);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
}

static double time_calls(void (*call)(void), long calls)
{
    double began = now_us();
    for (long i = 0; i < calls; i++)
        call();
    return now_us() - began;
}

/* Broadcasts the measurement of rank 0, by the operation itself. */
static double broadcast(void (*call)(void), double value)
{
    tensors[0][0] = rank == 0 ? value : 0;
    call();
    value = tensors[0][0];
    tensors[0][0] = 0;
    return value;
}

static void measure(const char *name, const char *variant, void (*call)(void), double budget_us)
{
    fill(0);
    call();
    check(name, variant);
    fill(1);
    long calls = 1, rounds = 0;
    double each = 1e12, took = 0, total = 0;
    while ((took < budget_us / 8 || rounds < 3) && total < 2 * budget_us) {
        if (took < budget_us / 8 && rounds > 0)
            calls *= 2;
        took = broadcast(call, time_calls(call, calls));
        total += took;
        rounds++;
        each = took / calls < each ? took / calls : each;
    }
    each = each < 0.01 ? 0.01 : each;
    long in_batch = budget_us / BATCHES / each, batches = BATCHES;
    if (in_batch < 1) {
        in_batch = 1;
        batches = budget_us / each;
        batches = batches < MIN_BATCHES ? MIN_BATCHES : batches;
    }
    double times_us[BATCHES];
    for (int b = 0; b < batches; b++)
        times_us[b] = time_calls(call, in_batch) / in_batch;
    if (rank == 0) {
        printf("case %s %s", name, variant);
        for (int b = 0; b < batches; b++)
            printf(" %.0f", times_us[b] * 1e3);
        printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int a = 1; a < argc; a++) {
        char *name = strtok(argv[a], ":"), *budget = strtok(NULL, ":"), *list = strtok(NULL, ":");
        if (!name || !budget || !list)
            MPI_Abort(MPI_COMM_WORLD, 2);
        count = 0;
        for (char *length = strtok(list, ","); length && count < MAX_TENSORS; length = strtok(NULL, ",")) {
            lengths[count] = atoi(length);
            tensors[count] = aligned_alloc(4096, ((size_t)lengths[count] * 4 + 4095) / 4096 * 4096);
            if (!tensors[count++])
                MPI_Abort(MPI_COMM_WORLD, 3);
        }
        measure(name, "blocking", blocking, atof(budget));
        if (count > 1)
            measure(name, "nonblocking", nonblocking, atof(budget));
        for (int t = 0; t < count; t++)
            free(tensors[t]);
    }
    MPI_Finalize();
    return 0;
}
