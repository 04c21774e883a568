/* One `write` for each file: the minimum of a fan-out. */

#include <unistd.h>

int write_to_all(const int *files, int count, const char *data, size_t size)
{
    int whole = 0;
    for (int i = 0; i < count; i++)
        whole += write(files[i], data, size) == (ssize_t)size;
    return whole;
}
