/* Launches of compiled Triton kernels, less what Python takes for them; `native_launch.py` builds these files as one
   and says why.

   `Driver` (here) has the functions of CUDA's driver. `Kernel` (kernel.c) is a compiled kernel with all arguments bound but
   the addresses of its tensors. `Launches` (launches.c) are launches of kernels one after another. A `Call` (call.c) is a
   function of tensors that allocates fresh ones, and makes launches on all of these. There are two kinds: `GuardedCall`
   (guarded_call.c) checks the dtypes and the device of its tensors; `ReplayedCall` (replayed_call.c) copies its tensors to
   where a CUDA graph reads them, and replays it. None knows torch: tensors are asked for `data_ptr`, `dtype` and
   `get_device`, as Python code would ask them. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>
#include <string.h>

enum { INVALID_CONTEXT = 201 };
enum { RELAXED = 2 }; /* a mode in which a thread does what a capture of another thread would forbid */
enum { MOST = 4096 }; /* arguments of a kernel, and tensors of a call: their addresses lie on the stack */

static PyObject *data_ptr, *dtype, *get_device; /* names */
static PyTypeObject *driver_type, *kernel_type, *launches_type;

/* ---- Driver ---- */

typedef struct { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    void *function;
    unsigned grid[3], threads[3], shared;
    void **arguments, **extra;
    void *kernel, *context;
} NodeParameters;

typedef struct {
    PyObject_HEAD
    int (*launch)(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                  unsigned threads_z, unsigned shared, void *stream, void **arguments, void **extra);
    int (*describe)(int error, const char **text);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*current_device)(int *device);
    int (*is_capturing)(void *stream, int *status);
    int (*exchange_mode)(int *mode); /* of the thread, towards captures of others */
    int (*create_graph)(void **graph, unsigned flags);
    int (*add_node)(void **node, void *graph, void *const *behind, size_t count, const NodeParameters *parameters);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*set_parameters)(void *exec, void *node, const NodeParameters *parameters);
    int (*launch_graph)(void *exec, void *stream);
    int (*destroy_graph)(void *graph);
    int (*destroy_exec)(void *exec);
} Driver;

/* -1 and an error if an object of this type is made with keywords. */
static int no_keywords(PyTypeObject *type, PyObject *kwargs) {
    if (!kwargs || !PyDict_GET_SIZE(kwargs)) return 0;
    PyErr_Format(PyExc_TypeError, "%s takes no keywords", type->tp_name);
    return -1;
}

static PyObject *driver_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    if (no_keywords(type, kwargs) < 0) return NULL;
    Driver *self = (Driver *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    void **places[] = {(void **)&self->launch,         (void **)&self->describe,       (void **)&self->retain,
                       (void **)&self->set_current,    (void **)&self->current_device, (void **)&self->is_capturing,
                       (void **)&self->exchange_mode,  (void **)&self->create_graph,   (void **)&self->add_node,
                       (void **)&self->instantiate,    (void **)&self->set_parameters, (void **)&self->launch_graph,
                       (void **)&self->destroy_graph,  (void **)&self->destroy_exec};
    Py_ssize_t count = sizeof places / sizeof *places;
    if (PyTuple_GET_SIZE(args) != count)
        PyErr_Format(PyExc_ValueError, "a Driver takes the addresses of %zd functions", count);
    for (Py_ssize_t n = 0; n < count && !PyErr_Occurred(); n++) {
        *places[n] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(args, n));
        if (!*places[n] && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "function %zd has no address", n);
    }
    if (!PyErr_Occurred()) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void driver_dealloc(Driver *self) {
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* -1, and an error that says what the driver says. */
static int failed(Driver *driver, int error, const char *where) {
    const char *text = NULL;
    driver->describe(error, &text);
    PyErr_Format(PyExc_RuntimeError, "CUDA driver error %d at %s: %s", error, where, text ? text : "unknown");
    return -1;
}

/* The addresses of a tuple; -1 and an error if one is no number. */
static int read_addresses(PyObject *given, uint64_t *addresses) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(given); n++) {
        addresses[n] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(given, n));
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

/* A thread that has asked CUDA for nothing yet has no context: it gets the device's. */
static int set_context(Driver *driver, int device) {
    void *context = NULL;
    int error = driver->retain(&context, device);
    return error ? error : driver->set_current(context);
}

static PyType_Slot driver_slots[] = {
    {Py_tp_doc, "Driver(addresses of the functions of CUDA's driver that `native_launch.py` names, in its order)"},
    {Py_tp_new, driver_new},
    {Py_tp_dealloc, driver_dealloc},
    {0},
};

static PyType_Spec driver_spec = {
    "passnet_launch.Driver", sizeof(Driver), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, driver_slots,
};
