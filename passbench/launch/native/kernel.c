/* ---- Kernel ---- */

typedef struct {
    PyObject_HEAD
    Driver *driver;
    int device;
    void *function;
    int grid[3], threads, shared;
    Py_ssize_t tensors, others;
    uint64_t *values; /* of the other arguments, each in the first bytes of its own 8 */
} Kernel;

static void set_value(uint64_t *slot, char kind, PyObject *value) {
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
    *slot = bits.whole;
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *driver, *values;
    unsigned long long function;
    int device, grid[3], threads, shared;
    Py_ssize_t tensors, length;
    const char *kinds;
    if (no_keywords(type, kwargs) < 0) return NULL;
    if (!PyArg_ParseTuple(args, "O!iK(iii)iins#O!", driver_type, &driver, &device, &function, &grid[0], &grid[1],
                          &grid[2], &threads, &shared, &tensors, &kinds, &length, &PyTuple_Type, &values))
        return NULL;
    if (!function || length != PyTuple_GET_SIZE(values))
        return PyErr_Format(PyExc_ValueError, "a Kernel takes a function, and a kind for each value");
    if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1) return PyErr_Format(PyExc_ValueError, "a grid has a size below 1");
    if (tensors < 0 || tensors > MOST || length > MOST)
        return PyErr_Format(PyExc_ValueError, "a Kernel takes at most %d tensors, and as many values", MOST);
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->driver = (Driver *)Py_NewRef(driver);
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
    Py_XDECREF(self->driver);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* Pointers to all arguments, for tensors at addresses[numbers[0]], addresses[numbers[1]], ... */
static void fill_arguments(Kernel *self, uint64_t *addresses, const Py_ssize_t *numbers, void **arguments) {
    for (Py_ssize_t n = 0; n < self->tensors; n++) arguments[n] = &addresses[numbers ? numbers[n] : n];
    for (Py_ssize_t n = 0; n < self->others; n++) arguments[self->tensors + n] = &self->values[n];
}

/* Launch on such tensors; an error of the driver's. */
static int start(Kernel *self, uint64_t *addresses, const Py_ssize_t *numbers, void *stream) {
    void *arguments[self->tensors + self->others + 1];
    fill_arguments(self, addresses, numbers, arguments);
    return self->driver->launch(self->function, self->grid[0], self->grid[1], self->grid[2], self->threads, 1, 1,
                                self->shared, stream, arguments, NULL);
}

static PyObject *kernel_launch(Kernel *self, PyObject *args) {
    PyObject *given;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "O!K", &PyTuple_Type, &given, &stream)) return NULL;
    if (PyTuple_GET_SIZE(given) != self->tensors)
        return PyErr_Format(PyExc_TypeError, "a kernel of %zd tensors was launched on %zd", self->tensors,
                            PyTuple_GET_SIZE(given));
    uint64_t addresses[self->tensors + 1];
    if (read_addresses(given, addresses) < 0) return NULL;
    int error = start(self, addresses, NULL, (void *)(uintptr_t)stream);
    if (error && failed(self->driver, error, "a launch")) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef kernel_methods[] = {
    {"launch", (PyCFunction)kernel_launch, METH_VARARGS,
     "launch(addresses, stream): on tensors at these addresses, aligned, of the dtypes the kernel was compiled for."},
    {NULL},
};

static PyType_Slot kernel_slots[] = {
    {Py_tp_doc, "Kernel(driver, device, function, (x, y, z), threads, shared, tensors, kinds, values)"},
    {Py_tp_new, kernel_new},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_methods, kernel_methods},
    {0},
};

static PyType_Spec kernel_spec = {
    "passnet_launch.Kernel", sizeof(Kernel), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, kernel_slots,
};
