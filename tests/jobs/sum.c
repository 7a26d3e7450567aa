/* A real MPI program: every rank brings its number, and all must know the sum. Needs the library that the launcher came with,
   and no headers: what differs between the two families is written here as their interfaces have it. */
#include <stdio.h>

#ifdef OPEN_MPI
typedef void *Handle;
extern char ompi_mpi_comm_world[], ompi_mpi_int[], ompi_mpi_op_sum[];
#define WORLD ompi_mpi_comm_world
#define INT ompi_mpi_int
#define SUM ompi_mpi_op_sum
#else
typedef int Handle;
#define WORLD 0x44000000
#define INT 0x4c000405
#define SUM 0x58000003
#endif

int MPI_Init(int *, char ***);
int MPI_Comm_rank(Handle, int *);
int MPI_Comm_size(Handle, int *);
int MPI_Allreduce(const void *, void *, int, Handle, Handle, Handle);
int MPI_Finalize(void);

int main(int argc, char **argv) {
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(WORLD, &rank);
    MPI_Comm_size(WORLD, &size);
    int mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, INT, SUM, WORLD);
    printf("rank %d of %d knows the sum %d\n", rank, size, sum);
    MPI_Finalize();
    return 0;
}
