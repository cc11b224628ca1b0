#include "engine/utf8.h"

#include <stdio.h>
#include <string.h>

#define QUOTED_BYTES 80

int assay_utf8_length(const char *text, size_t n)
{
    const unsigned char *b = (const unsigned char *)text;
    if (n == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    if (b[0] < 0xC2 || b[0] > 0xF4)
        return 0;
    int length = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (n < (size_t)length)
        return 0;
    /* The second byte's range is narrower after four lead bytes: overlong, surrogate, too large. */
    unsigned low = b[0] == 0xE0 ? 0xA0 : b[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = b[0] == 0xED ? 0x9F : b[0] == 0xF4 ? 0x8F : 0xBF;
    if (b[1] < low || b[1] > high)
        return 0;
    for (int i = 2; i < length; i++)
        if ((b[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

uint32_t assay_utf8_get(const char *text, int length)
{
    static const unsigned char lead[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code_point = (unsigned char)text[0] & lead[length];
    for (int i = 1; i < length; i++)
        code_point = code_point << 6 | ((unsigned char)text[i] & 0x3F);
    return code_point;
}

int assay_utf8_put(char out[4], uint32_t code_point)
{
    static const unsigned char mark[5] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    int length = code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code_point & 0x3F));
        code_point >>= 6;
    }
    out[0] = (char)(mark[length] | code_point);
    return length;
}

const char *assay_utf8_quote(char out[ASSAY_QUOTE_BYTES], const char *bytes, size_t n)
{
    size_t used = 0, at = 0;
    while (at < n && at < QUOTED_BYTES) {
        int length = assay_utf8_length(bytes + at, n - at);
        uint32_t code_point = length ? assay_utf8_get(bytes + at, length) : 0;
        if (code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0)) {
            used += (size_t)sprintf(out + used, "\\x%02X", (unsigned char)bytes[at]);
            at++;
        } else {
            memcpy(out + used, bytes + at, (size_t)length);
            used += (size_t)length;
            at += (size_t)length;
        }
    }
    strcpy(out + used, at < n ? "..." : "");
    return out;
}
