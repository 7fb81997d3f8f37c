/* Launches of compiled Triton kernels, less what Python takes for them; `native_launch.py` builds this and says why.

   `Kernel` is a compiled kernel with all arguments bound but the addresses of its tensors. `GuardedCall` is a function
   of tensors that checks them, allocates fresh ones, and launches kernels on all of these. Neither knows torch: tensors
   are asked for `data_ptr`, `dtype` and `get_device`, as Python code would ask them. */
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

static PyObject *data_ptr, *dtype, *get_device; /* names */
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

/* Launch on tensors at addresses[numbers[0]], addresses[numbers[1]], ...; -1 and an error if the driver refuses. */
static int start(Kernel *self, uint64_t *addresses, const Py_ssize_t *numbers, void *stream) {
    void *arguments[self->tensors + self->others + 1];
    for (Py_ssize_t n = 0; n < self->tensors; n++) arguments[n] = &addresses[numbers ? numbers[n] : n];
    for (Py_ssize_t n = 0; n < self->others; n++) arguments[self->tensors + n] = &self->values[n];
    int error = launch_once(self, arguments, stream);
    if (error == INVALID_CONTEXT && !(error = set_context(self))) error = launch_once(self, arguments, stream);
    if (!error) return 0;
    const char *text = NULL;
    self->driver.describe(error, &text);
    PyErr_Format(PyExc_RuntimeError, "CUDA driver error %d at a launch: %s", error, text ? text : "unknown");
    return -1;
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

/* ---- GuardedCall ---- */

typedef struct {
    Kernel *kernel;
    Py_ssize_t *numbers, made; /* its tensors by number, and how many tensors must be there before it is launched */
} Step;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t inputs, fresh, count;
    Step *steps;
    PyObject *kept; /* the arguments that it was made of, which hold the kernels of its steps and what follows */
    PyObject *dtypes, *layouts, *fillers, *stream, *empty, *otherwise, *device;
    long device_number;
} GuardedCall;

/* The address of a tensor; an error as Python's own if it is none. */
static uint64_t address_of(PyObject *tensor) {
    PyObject *found = PyObject_CallMethodNoArgs(tensor, data_ptr);
    if (!found) return 0;
    uint64_t address = PyLong_AsUnsignedLongLong(found);
    Py_DECREF(found);
    return address;
}

/* 1 if a tensor is on the device; -1 and an error if it cannot say. */
static int is_there(GuardedCall *self, PyObject *tensor) {
    PyObject *found = PyObject_CallMethodNoArgs(tensor, get_device);
    if (!found) return -1;
    long number = PyLong_AsLong(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : number == self->device_number;
}

/* 1 if the call may be made here, with the inputs' addresses; 0 if it is the other function's; -1 and an error. */
static int fits(GuardedCall *self, PyObject *const *inputs, uint64_t *addresses) {
    if (self->fresh && PyList_GET_SIZE(self->fillers)) return 0;
    uint64_t together = 0;
    for (Py_ssize_t n = 0; n < self->inputs; n++) {
        together |= addresses[n] = address_of(inputs[n]);
        if (PyErr_Occurred()) return -1;
    }
    if (together % 16) return 0;
    for (Py_ssize_t n = 0; n < self->inputs; n++) {
        PyObject *found = PyObject_GetAttr(inputs[n], dtype);
        if (!found) return -1;
        int same = found == PyTuple_GET_ITEM(self->dtypes, n);
        Py_DECREF(found);
        int there = same ? is_there(self, inputs[n]) : 0;
        if (there <= 0) return there;
    }
    return 1;
}

/* As `fits`, for one more fresh tensor: whether it is on the device. */
static int make(GuardedCall *self, PyObject **fresh, uint64_t *addresses, Py_ssize_t number) {
    PyObject *const *layout = &PyTuple_GET_ITEM(PyTuple_GET_ITEM(self->layouts, number), 0);
    PyObject *tensor = PyObject_Vectorcall(self->empty, layout, 3, NULL);
    if (!tensor) return -1;
    fresh[number] = tensor;
    addresses[self->inputs + number] = address_of(tensor);
    if (PyErr_Occurred()) return -1;
    return number ? 1 : is_there(self, tensor); /* all are on the current device */
}

static PyObject *call(PyObject *callable, PyObject *const *inputs, size_t flags, PyObject *names) {
    GuardedCall *self = (GuardedCall *)callable;
    if (PyVectorcall_NARGS(flags) != self->inputs || names) {
        if (!self->kept) return PyErr_Format(PyExc_RuntimeError, "a GuardedCall was called while it was deleted");
        return PyObject_Vectorcall(self->otherwise, inputs, flags, names);
    }
    uint64_t addresses[self->inputs + self->fresh + 1];
    PyObject *fresh[self->fresh + 1];
    memset(fresh, 0, sizeof fresh);
    PyObject *result = NULL, *where = NULL;
    void *stream = NULL;
    Py_ssize_t made = 0;
    int good = fits(self, inputs, addresses);
    for (Py_ssize_t at = 0; good > 0 && at < self->count; at++) {
        Step *step = &self->steps[at];
        for (; good > 0 && made < step->made; made++) good = make(self, fresh, addresses, made);
        if (good <= 0) break; /* no launch yet, or an error */
        if (!where) {
            where = PyObject_CallOneArg(self->stream, self->device);
            if (where) stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(where);
            if (PyErr_Occurred()) good = -1;
        }
        if (good > 0 && start(step->kernel, addresses, step->numbers, stream) < 0) good = -1;
    }
    Py_XDECREF(where);
    if (good == 0) {
        result = PyObject_Vectorcall(self->otherwise, inputs, flags, NULL);
    } else if (good > 0 && self->fresh == 0) {
        result = Py_NewRef(Py_None);
    } else if (good > 0 && self->fresh == 1) {
        return fresh[0];
    } else if (good > 0 && (result = PyTuple_New(self->fresh))) {
        for (Py_ssize_t n = 0; n < self->fresh; n++) PyTuple_SET_ITEM(result, n, fresh[n]);
        return result;
    }
    for (Py_ssize_t n = 0; n < self->fresh; n++) Py_XDECREF(fresh[n]);
    return result;
}

/* A step's tensors by number, each below `most`; NULL and an error if they are not the kernel's. */
static Py_ssize_t *numbers_of(PyObject *given, Kernel *kernel, Py_ssize_t most) {
    Py_ssize_t length = PyTuple_GET_SIZE(given), *numbers = PyMem_Calloc(length + 1, sizeof(Py_ssize_t));
    if (!numbers) return (Py_ssize_t *)PyErr_NoMemory();
    if (length != kernel->tensors) PyErr_SetString(PyExc_ValueError, "a step has not as many tensors as its kernel");
    for (Py_ssize_t n = 0; n < length && !PyErr_Occurred(); n++) {
        numbers[n] = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, n));
        if (!PyErr_Occurred() && (numbers[n] < 0 || numbers[n] >= most))
            PyErr_SetString(PyExc_ValueError, "a step has a number of no tensor");
    }
    if (!PyErr_Occurred()) return numbers;
    PyMem_Free(numbers);
    return NULL;
}

static int set_steps(GuardedCall *self, PyObject *steps) {
    Py_ssize_t count = PyTuple_GET_SIZE(steps), made = self->fresh ? 1 : 0;
    self->steps = PyMem_Calloc(count + 1, sizeof(Step));
    if (!self->steps) return PyErr_NoMemory(), -1;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *kernel, *numbers;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(steps, at), "O!O!", kernel_type, &kernel, &PyTuple_Type, &numbers))
            return -1;
        Step *step = &self->steps[at];
        step->numbers = numbers_of(numbers, (Kernel *)kernel, self->inputs + self->fresh);
        if (!step->numbers) return -1;
        step->kernel = (Kernel *)kernel;
        self->count = at + 1;
        for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(numbers); n++)
            if (step->numbers[n] - self->inputs + 1 > made) made = step->numbers[n] - self->inputs + 1;
        step->made = at + 1 == count ? self->fresh : made;
    }
    return 0;
}

static int all_of(PyObject *tuples, Py_ssize_t size) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(tuples); n++) {
        PyObject *item = PyTuple_GET_ITEM(tuples, n);
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != size) return 0;
    }
    return 1;
}

static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *dtypes, *layouts, *steps, *fillers, *stream, *empty, *otherwise, *device;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "a GuardedCall takes no keywords");
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!OOO", &PyTuple_Type, &dtypes, &PyTuple_Type, &layouts, &PyTuple_Type, &steps,
                          &PyLong_Type, &device, &PyList_Type, &fillers, &stream, &empty, &otherwise))
        return NULL;
    if (!all_of(layouts, 3) || !all_of(steps, 2) || !PyTuple_GET_SIZE(steps))
        return PyErr_Format(PyExc_ValueError, "a GuardedCall takes layouts, tuples of three, and steps, tuples of two");
    if (PyTuple_GET_SIZE(dtypes) + PyTuple_GET_SIZE(layouts) > MOST)
        return PyErr_Format(PyExc_ValueError, "a GuardedCall takes at most %d tensors", MOST);
    long number = PyLong_AsLong(device);
    if (PyErr_Occurred()) return NULL;
    GuardedCall *self = (GuardedCall *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = call;
    self->inputs = PyTuple_GET_SIZE(dtypes), self->fresh = PyTuple_GET_SIZE(layouts), self->device_number = number;
    self->kept = Py_NewRef(args);
    self->dtypes = dtypes, self->layouts = layouts, self->fillers = fillers, self->device = device;
    self->stream = stream, self->empty = empty, self->otherwise = otherwise;
    if (set_steps(self, steps) == 0) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int call_traverse(GuardedCall *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->kept);
    return 0;
}

static int call_clear(GuardedCall *self) {
    self->inputs = -1; /* no call has so many */
    Py_CLEAR(self->kept); /* `otherwise` leads back to this call */
    return 0;
}

static void call_dealloc(GuardedCall *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t at = 0; at < self->count; at++) PyMem_Free(self->steps[at].numbers);
    PyMem_Free(self->steps);
    Py_XDECREF(self->kept);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(GuardedCall, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot call_slots[] = {
    {Py_tp_doc, "GuardedCall(dtypes, layouts, steps, device, fillers, stream, empty, otherwise)"},
    {Py_tp_new, call_new},
    {Py_tp_dealloc, call_dealloc},
    {Py_tp_traverse, call_traverse},
    {Py_tp_clear, call_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, call_members},
    {0},
};

static PyType_Spec call_spec = {
    "passnet_launch.GuardedCall", sizeof(GuardedCall), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, call_slots,
};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "passnet_launch", .m_size = -1};

PyMODINIT_FUNC PyInit_passnet_launch(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    data_ptr = PyUnicode_InternFromString("data_ptr");
    dtype = PyUnicode_InternFromString("dtype");
    get_device = PyUnicode_InternFromString("get_device");
    kernel_type = (PyTypeObject *)PyType_FromSpec(&kernel_spec);
    PyTypeObject *call_type = (PyTypeObject *)PyType_FromSpec(&call_spec);
    int good = data_ptr && dtype && get_device && kernel_type && call_type &&
               PyModule_AddType(module, kernel_type) == 0 && PyModule_AddType(module, call_type) == 0;
    Py_XDECREF(call_type);
    if (good) return module;
    Py_DECREF(module);
    return NULL;
}
