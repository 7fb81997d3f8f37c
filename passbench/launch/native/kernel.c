/* Launches of compiled Triton kernels, less what Python takes for them; `native_launch.py` builds these files as one
   and says why.

   `Kernel` (here) is a compiled kernel with all arguments bound but the addresses of its tensors. `GuardedCall`
   (guarded_call.c) is a function of tensors that checks them, allocates fresh ones, and launches kernels on all of these.
   `ReplayedCall` (replayed_call.c) is one that copies its tensors to where a CUDA graph reads them, and replays it. None
   knows torch: tensors are asked for `data_ptr`, `dtype` and `get_device`, as Python code would ask them. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>
#include <string.h>

typedef int (*launch_function)(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                               unsigned threads_z, unsigned shared, void *stream, void **arguments, void **extra);
typedef int (*error_function)(int error, const char **text);
typedef int (*retain_function)(void **context, int device);
typedef int (*context_function)(void *context);

enum { INVALID_CONTEXT = 201 };
enum { MOST = 4096 }; /* arguments of a kernel, and tensors of a call: their addresses lie on the stack */

typedef struct { /* functions of the driver */
    launch_function launch;
    error_function describe;
    retain_function retain;
    context_function set_current;
} Driver;

static PyObject *data_ptr, *dtype, *get_device, *acquire, *release; /* names */
static PyTypeObject *kernel_type;

/* ---- Kernel ---- */

typedef struct {
    PyObject_HEAD
    Driver driver;
    int device;
    void *function;
    int grid[3], threads, shared;
    Py_ssize_t tensors, others;
    uint64_t *values; /* of the other arguments, each in the first bytes of its own 8 */
} Kernel;

static void set_value(uint64_t *place, char kind, PyObject *value) {
    union { uint8_t b; int32_t i; int64_t l; uint64_t k; float f; double d; uint64_t whole; } bits = {.whole = 0};
    switch (kind) {
    case 'i': {
        long given = PyLong_AsLong(value);
        bits.i = (int32_t)given;
        if (bits.i != given) PyErr_SetString(PyExc_OverflowError, "a number of 32 bits is larger");
        break;
    }
    case 'B': bits.b = PyObject_IsTrue(value) == 1; break;
    case 'l': bits.l = PyLong_AsLongLong(value); break;
    case 'K': bits.k = PyLong_AsUnsignedLongLong(value); break;
    case 'f': bits.f = (float)PyFloat_AsDouble(value); break;
    case 'd': bits.d = PyFloat_AsDouble(value); break;
    case 'O': break; /* an address that is 0 */
    default: PyErr_Format(PyExc_ValueError, "no kind of argument: %c", (unsigned char)kind);
    }
    *place = bits.whole;
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    unsigned long long launch, describe, retain, set_current, function;
    int device, grid[3], threads, shared;
    Py_ssize_t tensors, length;
    const char *kinds;
    PyObject *values;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "a Kernel takes no keywords");
    if (!PyArg_ParseTuple(args, "(KKKK)iK(iii)iins#O!", &launch, &describe, &retain, &set_current, &device, &function,
                          &grid[0], &grid[1], &grid[2], &threads, &shared, &tensors, &kinds, &length, &PyTuple_Type,
                          &values))
        return NULL;
    if (!launch || !describe || !retain || !set_current || !function || length != PyTuple_GET_SIZE(values))
        return PyErr_Format(PyExc_ValueError, "a Kernel takes four addresses, and a kind for each value");
    if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1) return PyErr_Format(PyExc_ValueError, "a grid has a size below 1");
    if (tensors < 0 || tensors > MOST || length > MOST)
        return PyErr_Format(PyExc_ValueError, "a Kernel takes at most %d tensors, and as many values", MOST);
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->driver.launch = (launch_function)(uintptr_t)launch;
    self->driver.describe = (error_function)(uintptr_t)describe;
    self->driver.retain = (retain_function)(uintptr_t)retain;
    self->driver.set_current = (context_function)(uintptr_t)set_current;
    self->device = device;
    self->function = (void *)(uintptr_t)function;
    memcpy(self->grid, grid, sizeof grid);
    self->threads = threads, self->shared = shared, self->tensors = tensors, self->others = length;
    self->values = PyMem_Calloc(length + 1, sizeof(uint64_t));
    if (!self->values) PyErr_NoMemory();
    for (Py_ssize_t n = 0; n < length && !PyErr_Occurred(); n++)
        set_value(&self->values[n], kinds[n], PyTuple_GET_ITEM(values, n));
    if (!PyErr_Occurred()) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void kernel_dealloc(Kernel *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(self->values);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static int launch_once(Kernel *self, void **arguments, void *stream) {
    return self->driver.launch(self->function, self->grid[0], self->grid[1], self->grid[2], self->threads, 1, 1,
                               self->shared, stream, arguments, NULL);
}

/* A thread that has asked CUDA for nothing yet has no context: it gets the device's. */
static int set_context(Kernel *self) {
    void *context = NULL;
    int error = self->driver.retain(&context, self->device);
    return error ? error : self->driver.set_current(context);
}

/* -1, and an error that says what the driver says. */
static int failed(Driver *driver, int error, const char *where) {
    const char *text = NULL;
    driver->describe(error, &text);
    PyErr_Format(PyExc_RuntimeError, "CUDA driver error %d at %s: %s", error, where, text ? text : "unknown");
    return -1;
}

/* Launch on tensors at addresses[numbers[0]], addresses[numbers[1]], ...; -1 and an error if the driver refuses. */
static int start(Kernel *self, uint64_t *addresses, const Py_ssize_t *numbers, void *stream) {
    void *arguments[self->tensors + self->others + 1];
    for (Py_ssize_t n = 0; n < self->tensors; n++) arguments[n] = &addresses[numbers ? numbers[n] : n];
    for (Py_ssize_t n = 0; n < self->others; n++) arguments[self->tensors + n] = &self->values[n];
    int error = launch_once(self, arguments, stream);
    if (error == INVALID_CONTEXT && !(error = set_context(self))) error = launch_once(self, arguments, stream);
    return error ? failed(&self->driver, error, "a launch") : 0;
}

static PyObject *kernel_launch(Kernel *self, PyObject *args) {
    PyObject *given;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "O!K", &PyTuple_Type, &given, &stream)) return NULL;
    if (PyTuple_GET_SIZE(given) != self->tensors)
        return PyErr_Format(PyExc_TypeError, "a kernel of %zd tensors was launched on %zd", self->tensors,
                            PyTuple_GET_SIZE(given));
    uint64_t addresses[self->tensors + 1];
    for (Py_ssize_t n = 0; n < self->tensors; n++) {
        addresses[n] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(given, n));
        if (PyErr_Occurred()) return NULL;
    }
    if (start(self, addresses, NULL, (void *)(uintptr_t)stream) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef kernel_methods[] = {
    {"launch", (PyCFunction)kernel_launch, METH_VARARGS,
     "launch(addresses, stream): on tensors at these addresses, aligned, of the dtypes the kernel was compiled for."},
    {NULL},
};

static PyType_Slot kernel_slots[] = {
    {Py_tp_doc, "Kernel(driver's functions, device, function, (x, y, z), threads, shared, tensors, kinds, values)"},
    {Py_tp_new, kernel_new},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_methods, kernel_methods},
    {0},
};

static PyType_Spec kernel_spec = {
    "passnet_launch.Kernel", sizeof(Kernel), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, kernel_slots,
};
