/* ---- ReplayedCall ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t inputs, fresh, fixed;
    uint64_t *places; /* of the tensors behind the fresh ones */
    void *stream;
    int single; /* it returns the one fresh tensor, not a tuple of it */
    PyObject *kept; /* the arguments that it was made of, which hold all that follows, and the graph by its owner */
    Launches *launches;
    PyObject *same, *conditions, *layouts, *empty, *otherwise;
} ReplayedCall;

/* 1 if every condition, a function with its arguments, says what it should; -1 and an error if one raises. */
static int all_hold(PyObject *conditions) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(conditions); n++) {
        PyObject *condition = PyTuple_GET_ITEM(conditions, n);
        PyObject *found = PyObject_CallObject(PyTuple_GET_ITEM(condition, 0), PyTuple_GET_ITEM(condition, 1));
        if (!found) return -1;
        int holds = PyObject_RichCompareBool(found, PyTuple_GET_ITEM(condition, 2), Py_EQ);
        Py_DECREF(found);
        if (holds <= 0) return holds;
    }
    return 1;
}

/* 1 if these are inputs as those that were recorded; -1 and an error. */
static int are_same(ReplayedCall *self, PyObject *const *inputs, size_t flags) {
    PyObject *found = PyObject_Vectorcall(self->same, inputs, flags, NULL);
    if (!found) return -1;
    int same = found == Py_True;
    Py_DECREF(found);
    return same;
}

/* Fresh tensors for the results, with the addresses of all; NULL without an error if one is not aligned. */
static PyObject *results_of(ReplayedCall *self, PyObject *const *inputs, uint64_t *addresses) {
    uint64_t together = 0;
    for (Py_ssize_t n = 0; n < self->inputs; n++) {
        together |= addresses[n] = address_of(inputs[n]);
        if (PyErr_Occurred()) return NULL;
    }
    if (together % 16) return NULL;
    PyObject *results = PyTuple_New(self->fresh);
    for (Py_ssize_t n = 0; results && n < self->fresh; n++) {
        PyObject *const *layout = &PyTuple_GET_ITEM(PyTuple_GET_ITEM(self->layouts, n), 0);
        PyObject *tensor = PyObject_Vectorcall(self->empty, layout, 3, NULL);
        if (tensor) {
            PyTuple_SET_ITEM(results, n, tensor);
            addresses[self->inputs + n] = address_of(tensor);
        }
        if (PyErr_Occurred()) Py_CLEAR(results);
    }
    memcpy(addresses + self->inputs + self->fresh, self->places, self->fixed * sizeof(uint64_t));
    return results;
}

static PyObject *replayed(PyObject *callable, PyObject *const *inputs, size_t flags, PyObject *names) {
    ReplayedCall *self = (ReplayedCall *)callable;
    if (!self->kept) return PyErr_Format(PyExc_RuntimeError, "a ReplayedCall was called while it was deleted");
    int good = !names && PyVectorcall_NARGS(flags) == self->inputs;
    if (good) good = all_hold(self->conditions);
    if (good > 0) good = are_same(self, inputs, flags);
    if (good < 0) return NULL;
    uint64_t addresses[self->inputs + self->fresh + self->fixed + 1];
    PyObject *results = good ? results_of(self, inputs, addresses) : NULL;
    if (results && launch_all(self->launches, addresses, self->stream) < 0) Py_CLEAR(results);
    if (!results) {
        return PyErr_Occurred() ? NULL : PyObject_Vectorcall(self->otherwise, inputs, flags, names);
    }
    if (!self->single) return results;
    PyObject *one = Py_NewRef(PyTuple_GET_ITEM(results, 0));
    Py_DECREF(results);
    return one;
}

static int set_places(ReplayedCall *self, PyObject *places) {
    self->places = PyMem_Calloc(self->fixed + 1, sizeof(uint64_t));
    if (!self->places) return PyErr_NoMemory(), -1;
    return read_addresses(places, self->places);
}

static PyObject *replayed_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *same, *conditions, *layouts, *places, *launches, *empty, *owner, *otherwise;
    unsigned long long stream;
    Py_ssize_t inputs;
    int single;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "a ReplayedCall takes no keywords");
    if (!PyArg_ParseTuple(args, "nOO!O!pO!O!KOOO", &inputs, &same, &PyTuple_Type, &conditions, &PyTuple_Type, &layouts,
                          &single, &PyTuple_Type, &places, launches_type, &launches, &stream, &empty, &owner,
                          &otherwise))
        return NULL;
    if (!all_of(conditions, 3) || !all_of(layouts, 3))
        return PyErr_Format(PyExc_ValueError, "a ReplayedCall takes conditions and layouts, tuples of three");
    if (inputs < 0 || inputs > MOST ||
        inputs + PyTuple_GET_SIZE(layouts) + PyTuple_GET_SIZE(places) != ((Launches *)launches)->tensors)
        return PyErr_Format(PyExc_ValueError, "a ReplayedCall has as many tensors as its launches");
    if (single && PyTuple_GET_SIZE(layouts) != 1)
        return PyErr_Format(PyExc_ValueError, "a ReplayedCall of a single result has one layout");
    ReplayedCall *self = (ReplayedCall *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = replayed;
    self->inputs = inputs, self->fresh = PyTuple_GET_SIZE(layouts), self->fixed = PyTuple_GET_SIZE(places);
    self->stream = (void *)(uintptr_t)stream, self->single = single, self->launches = (Launches *)launches;
    self->kept = Py_NewRef(args);
    self->same = same, self->conditions = conditions, self->layouts = layouts;
    self->empty = empty, self->otherwise = otherwise;
    if (set_places(self, places) == 0) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int replayed_traverse(ReplayedCall *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->kept);
    return 0;
}

static int replayed_clear(ReplayedCall *self) {
    Py_CLEAR(self->kept); /* `otherwise` leads back to this call */
    return 0;
}

static void replayed_dealloc(ReplayedCall *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyMem_Free(self->places);
    Py_XDECREF(self->kept);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef replayed_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ReplayedCall, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot replayed_slots[] = {
    {Py_tp_doc, "ReplayedCall(inputs, same, conditions, layouts, single, places, launches, stream, empty, owner, otherwise)"},
    {Py_tp_new, replayed_new},
    {Py_tp_dealloc, replayed_dealloc},
    {Py_tp_traverse, replayed_traverse},
    {Py_tp_clear, replayed_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, replayed_members},
    {0},
};

static PyType_Spec replayed_spec = {
    "passnet_launch.ReplayedCall", sizeof(ReplayedCall), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, replayed_slots,
};
